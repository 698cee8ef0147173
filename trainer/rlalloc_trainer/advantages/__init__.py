"""Counterfactual advantages: what another decision would have gained, measured in the simulator."""
