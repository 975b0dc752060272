# Added to an example module, this builds servers in a test's cloud: a folder with a program `provider` that
# makes and removes them, as files. Only provisioners touch them, so what the folder holds is what exists,
# whatever the state says.

variable "cloud" {
  type        = string
  description = "Folder of the cloud."
}

variable "servers" {
  type        = number
  default     = 2
  description = "How many servers to run."
}

variable "broken" {
  type        = string
  default     = ""
  description = "Fails the plan and the apply, quoting this text."
}

variable "generation" {
  type        = number
  default     = 0
  description = "A change of it makes an apply due and changes nothing else."
}

resource "terraform_data" "server" {
  count = var.servers
  input = {
    provider = "${var.cloud}/provider"
    name     = "${var.captf_object.namespace}.${var.captf_object.name}.${count.index}"
    index    = count.index
  }

  provisioner "local-exec" {
    command = "${self.input.provider} create ${self.input.name} ${self.input.index}"
  }

  provisioner "local-exec" {
    when    = destroy
    command = "${self.input.provider} destroy ${self.input.name} ${self.input.index}"
  }
}

resource "terraform_data" "order" {
  input = var.generation

  lifecycle {
    precondition {
      condition     = var.broken == ""
      error_message = "The module is broken: ${var.broken}."
    }
  }
}
