#!/bin/bash
matlab -batch "run('sim.m')"
