"""GPU memory of LLMs, measured with Hugging Face's libraries, beside what ``rlalloc.llm`` computes.

``memory_setups``   which models and settings are measured, each with the batch script of such a job
``other_families``  a second set, of families that the first does not have, with settings drawn at random
``measure``         measures them; needs a GPU, torch, transformers, accelerate and peft
``measured_cases``  what was measured (``h100.jsonl``), beside rlalloc's estimates
"""
