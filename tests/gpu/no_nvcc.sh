#!/usr/bin/env bash
# Stands for the test that needs nvcc.
echo "skipped: no nvcc, so the CUDA kernels are not compiled for any GPU"
exit 77
