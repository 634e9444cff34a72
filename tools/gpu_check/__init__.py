"""The stages of tools/gpu-check, one module each."""
