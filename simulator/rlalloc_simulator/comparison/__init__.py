"""The one evaluator: policies on the very same workloads, one result for each, and paired statistics over them."""
