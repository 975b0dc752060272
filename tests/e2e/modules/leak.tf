# Added to the example module of a machine, this fails and prints every secret that it was given.

variable "note" {
  type = string
}

resource "terraform_data" "leak" {
  triggers_replace = var.note

  provisioner "local-exec" {
    command = "echo \"refused: $DEMO_TOKEN, ${nonsensitive(var.note)}, ${base64decode(nonsensitive(var.bootstrap_data))}\" >&2; exit 1"
  }
}
