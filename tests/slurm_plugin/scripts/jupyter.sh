#!/bin/bash
jupyter lab --no-browser --port 8888
