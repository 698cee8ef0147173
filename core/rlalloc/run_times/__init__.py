"""How long a job will run: quantiles learned from the site's past jobs (docs/explanation/run-times.md).

``RecentRuns`` keeps what like jobs did lately, ``RunTimePredictor`` answers, with a ``RunTimeModel`` where there is
one. Only training and a model need LightGBM.
"""
