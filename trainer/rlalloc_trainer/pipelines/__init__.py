"""The two trainings: from nothing in the simulator (``pretrain``), and on the jobs of a site (``retrain``)."""
