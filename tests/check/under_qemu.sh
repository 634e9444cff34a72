#!/bin/sh
# under_qemu.sh CPU PROGRAM...: runs each program on an emulated CPU that lacks
# what this machine may have: an instruction too many ends it by a signal.
cpu=$1
shift
qemu=$(command -v qemu-x86_64) || {
  echo "skipped: qemu-x86_64 is not installed (package qemu-user)"
  exit 77
}
export PEN_TEST_QUICK=1 # fewer shapes: emulation is slow
for program; do
  "$qemu" -cpu "$cpu" "$program"
  result=$?
  if [ $result -ne 0 ] && [ $result -ne 77 ]; then
    echo "$program on $cpu: exit code $result"
    exit 1
  fi
done
