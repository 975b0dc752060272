# A cluster module that builds nothing outside of Terraform's state: every input and output of the contract on
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

variable "control_plane_endpoint" {
  type = object({
    host = string
    port = number
  })
  default = null
}

variable "kubernetes_version" {
  type    = string
  default = null
}

variable "control_plane_initialized" {
  type = bool
}

variable "cluster_network" {
  type = object({
    pods            = list(string)
    services        = list(string)
    service_domain  = string
    api_server_port = number
  })
  default = null
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
  description = "Whether the health output calls the cluster healthy."
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

variable "replace_when_changed" {
  type        = string
  default     = ""
  description = "Replaces the load balancer when it changes."
}

variable "sleep_seconds" {
  type        = number
  default     = 0
  description = "How long the first apply takes at least."
}

variable "extra_export" {
  type        = string
  default     = null
  description = "Adds a member to the exports: a change of an output alone."
}

variable "extra_resources" {
  type        = number
  default     = 0
  description = "Number of further resources; lowering it destroys some."
}

resource "terraform_data" "load_balancer" {
  input = {
    cluster                   = var.captf_cluster
    object                    = var.captf_object
    tags                      = var.captf_tags
    control_plane_endpoint    = var.control_plane_endpoint
    kubernetes_version        = var.kubernetes_version
    control_plane_initialized = var.control_plane_initialized
    cluster_network           = var.cluster_network
  }
  triggers_replace = var.replace_when_changed

  lifecycle {
    postcondition {
      condition     = !var.fail
      error_message = "The load balancer was told to fail by the variable fail."
    }
  }
}

resource "terraform_data" "extra" {
  count = var.extra_resources
  input = var.captf_tags
}

# Needs sleep and a shell, so it exists only when it is asked for.
resource "terraform_data" "delay" {
  count = var.sleep_seconds > 0 ? 1 : 0

  provisioner "local-exec" {
    command = "sleep ${var.sleep_seconds}"
  }
}

output "control_plane_endpoint" {
  value = var.control_plane_endpoint != null ? var.control_plane_endpoint : {
    host = "noop-${var.captf_object.name}.invalid"
    port = 6443
  }
}

output "failure_domains" {
  value = [
    {
      name          = "fd1"
      control_plane = true
      attributes    = {}
    }
  ]
}

output "exports" {
  value = merge(
    { backend_id = "noop-backend-${terraform_data.load_balancer.id}" },
    var.extra_export != null ? { extra = var.extra_export } : {},
  )
}

output "health" {
  value = {
    state   = var.health_state
    healthy = var.healthy
    message = var.health_message
    reasons = []
  }
}
