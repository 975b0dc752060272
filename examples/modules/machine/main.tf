# A machine module that builds nothing outside of Terraform's state: every input and output of the contract on
# one terraform_data resource. The variables below the line are not part of the contract.

variable "captf_contract" {
  type = string
}

variable "captf_cluster" {
  type = object({
    name      = string
    namespace = string
  })
}

variable "captf_object" {
  type = object({
    kind      = string
    name      = string
    namespace = string
  })
}

variable "captf_tags" {
  type = map(string)
}

variable "captf_cluster_outputs" {
  type    = any
  default = null
}

variable "machine_name" {
  type = string
}

variable "bootstrap_data" {
  type      = string
  sensitive = true
}

variable "bootstrap_format" {
  type = string
}

variable "failure_domain" {
  type    = string
  default = null
}

variable "kubernetes_version" {
  type    = string
  default = null
}

variable "control_plane" {
  type = bool
}

# ---------------------------------------------------------------------------------------------------------

variable "health_state" {
  type        = string
  default     = "running"
  description = "State that the health output reports."
}

variable "healthy" {
  type        = bool
  default     = true
  description = "Whether the health output calls the machine healthy."
}

variable "health_message" {
  type        = string
  default     = null
  description = "Message of the health output."
}

variable "fail" {
  type        = bool
  default     = false
  description = "Fails the apply by a postcondition."
}

variable "sleep_seconds" {
  type        = number
  default     = 0
  description = "How long the first apply takes at least."
}

resource "terraform_data" "instance" {
  input = {
    cluster            = var.captf_cluster
    object             = var.captf_object
    tags               = var.captf_tags
    backend_id         = try(var.captf_cluster_outputs.backend_id, null)
    bootstrap_format   = var.bootstrap_format
    kubernetes_version = var.kubernetes_version
    control_plane      = var.control_plane
    failure_domain     = var.failure_domain
    # Only a hash: what a resource stores of the data itself would be printed by the next plan.
    bootstrap_sha256 = sha256(var.bootstrap_data)
  }

  lifecycle {
    postcondition {
      condition     = !var.fail
      error_message = "The instance was told to fail by the variable fail."
    }
  }
}

# Needs sleep and a shell, so it exists only when it is asked for.
resource "terraform_data" "delay" {
  count = var.sleep_seconds > 0 ? 1 : 0

  provisioner "local-exec" {
    command = "sleep ${var.sleep_seconds}"
  }
}

output "provider_id" {
  value = "noop:///${var.captf_object.namespace}/${var.machine_name}"

  depends_on = [terraform_data.instance]
}

output "addresses" {
  value = [
    {
      type    = "InternalIP"
      address = "10.0.0.1"
    }
  ]
}

output "failure_domain" {
  value = var.failure_domain
}

output "interruptible" {
  value = false
}

output "health" {
  value = {
    state   = var.health_state
    healthy = var.healthy
    message = var.health_message
    reasons = []
  }
}
