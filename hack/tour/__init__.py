"""The tour: one cluster and two machines, from apply to destroy, by real Terraform on this machine.

``python -m hack.tour`` tells it step by step; the end-to-end tests use its stage.
"""
