# Added to the example module of a cluster together with `exports_override.tf`, this makes its state large: the
# text of a file is kept as the input and the output of a resource, and in the exports.

variable "ballast" {
  type        = string
  description = "The file."
}

resource "terraform_data" "ballast" {
  input = file(var.ballast)
}
