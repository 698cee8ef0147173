"""``python -m rlalloc_research``: tables and figures of papers, one command each."""

import typer

from rlalloc_research.job_commands import (
    llm_memory,
    profiles_and_prior,
    shared_speeds,
    speed_model,
    trace_run_times,
    truths,
    undeclared_needs,
)
from rlalloc_research.learning_commands import (
    advantage_noise,
    critic_fit,
    imitation_ablation,
    parallelism,
    pareto_front,
    planning,
    planning_latency,
    sac_check,
    typical_advantages,
)
from rlalloc_research.site_commands import gpu_types, limit_kills, ordinary_site, price_check

app = typer.Typer(no_args_is_help=True, help="Tables and figures of papers.")
app.command("pareto-front")(pareto_front)
app.command("planning")(planning)
app.command("parallelism")(parallelism)
app.command("sac-check")(sac_check)
app.command("imitation-ablation")(imitation_ablation)
app.command("advantage-noise")(advantage_noise)
app.command("critic-fit")(critic_fit)
app.command("typical-advantages")(typical_advantages)
app.command("planning-latency")(planning_latency)
app.command("llm-memory")(llm_memory)
app.command("profiles-and-prior")(profiles_and_prior)
app.command("trace-run-times")(trace_run_times)
app.command("undeclared-needs")(undeclared_needs)
app.command("speed-model")(speed_model)
app.command("shared-speeds")(shared_speeds)
app.command("truths")(truths)
app.command("limit-kills")(limit_kills)
app.command("gpu-types")(gpu_types)
app.command("ordinary-site")(ordinary_site)
app.command("price-check")(price_check)

if __name__ == "__main__":
    app()
