# A machine pool module that builds nothing outside of Terraform's state: every input and output of the contract
# on one terraform_data resource. The variables below the line are not part of the contract.

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

variable "machinepool_name" {
  type = string
}

variable "replicas" {
  type = number
}

variable "bootstrap_data" {
  type      = string
  sensitive = true
}

variable "bootstrap_format" {
  type = string
}

variable "failure_domains" {
  type = list(string)
}

variable "cluster_failure_domains" {
  type = list(string)
}

variable "kubernetes_version" {
  type    = string
  default = null
}

variable "node_labels" {
  type = map(string)
}

# Declared, not read: nothing here scales by itself.
variable "autoscaling" {
  type = object({
    enabled = bool
    min     = number
    max     = number
  })
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
  description = "Whether the health output calls the pool healthy."
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
  description = "Replaces the group when it changes."
}

variable "sleep_seconds" {
  type        = number
  default     = 0
  description = "How long the first apply takes at least."
}

variable "observed_replicas" {
  type        = number
  default     = null
  description = "Members that the group reports, when that shall differ from what it was asked for."
}

locals {
  members = var.observed_replicas != null ? var.observed_replicas : var.replicas
  ids     = sort([for i in range(local.members) : "noop:///${var.captf_object.namespace}/${var.machinepool_name}/${i}"])
}

resource "terraform_data" "group" {
  input = {
    cluster                 = var.captf_cluster
    object                  = var.captf_object
    tags                    = var.captf_tags
    backend_id              = try(var.captf_cluster_outputs.backend_id, null)
    bootstrap_format        = var.bootstrap_format
    kubernetes_version      = var.kubernetes_version
    replicas                = var.replicas
    node_labels             = var.node_labels
    failure_domains         = var.failure_domains
    cluster_failure_domains = var.cluster_failure_domains
    # Only a hash: what a resource stores of the data itself would be printed by the next plan.
    bootstrap_sha256 = sha256(var.bootstrap_data)
  }
  triggers_replace = var.replace_when_changed

  lifecycle {
    postcondition {
      condition     = !var.fail
      error_message = "The group was told to fail by the variable fail."
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
  value = "noop-group:///${var.captf_object.namespace}/${var.machinepool_name}"

  depends_on = [terraform_data.group]
}

output "provider_id_list" {
  value = local.ids
}

output "replicas" {
  value = local.members
}

output "instances" {
  value = [
    for id in local.ids : {
      provider_id = id
      state       = "running"
    }
  ]
}

output "health" {
  value = {
    state   = var.health_state
    healthy = var.healthy
    message = var.health_message
    reasons = []
  }
}
