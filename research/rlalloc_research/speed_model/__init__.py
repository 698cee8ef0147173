"""How well the speed model predicts published measurements, and what it spares jobs."""
