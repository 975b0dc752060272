output "exports" {
  value = {
    backend_id = terraform_data.load_balancer.id
    ballast    = terraform_data.ballast.output
  }
}
