"""What the fakes of services with sandboxes share: a clock for the ledger, an executor, routes."""
