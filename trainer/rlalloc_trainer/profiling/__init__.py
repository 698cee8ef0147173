"""How ``rlalloc profile`` measures: a GPT is trained for a few steps in each size.

``gpt_shapes``        the models, by name
``profiled_gpt``      the model itself (torch)
``token_windows``     its data
``made_up_text``      a text for where none is named
``measured_steps``    the program that torchrun starts: trains and measures (torch)
``point_launch``      the program of each node: starts torchrun, watches memory and time
``point_files``       the files in which all of them meet
``point_grid``        which sizes are measured
``profile_session``   measures what is missing and keeps the profile up to date
``local_points``      runs points on this machine
"""
