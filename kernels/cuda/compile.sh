#!/usr/bin/env bash
# compile.sh LOG COMMAND...: runs nvcc; what ptxas says of registers goes to LOG,
# for tests/gpu/test_registers.py, and to the terminal only where it fails.
log=$1
shift
"$@" >"$log" 2>&1 && exit
status=$?
cat "$log" >&2
exit $status
