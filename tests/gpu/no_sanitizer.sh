#!/usr/bin/env bash
# Stands for a test that needs a sanitizer's runtime.
echo "skipped: this compiler makes no program that runs with $1"
exit 77
