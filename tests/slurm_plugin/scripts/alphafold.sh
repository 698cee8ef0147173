#!/bin/bash
apptainer run --nv af2.sif --fasta_paths=t.fa --max_template_date=2024-01-01
