"""Which policy version serves: the evidence, the gate, the routing and the version files."""
