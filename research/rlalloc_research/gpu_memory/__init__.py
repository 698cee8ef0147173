"""GPU memory of LLMs, measured with Hugging Face's libraries, beside what ``rlalloc.llm`` computes.

``memory_setups``   which models and settings are measured, each with the batch script of such a job
``measure``         measures them; needs a GPU, torch, transformers, accelerate and peft
``measured_cases``  what was measured (``h100.jsonl``), beside rlalloc's estimates
"""
