#!/bin/sh
# on_arm.sh SOURCE_ROOT OUT_DIR CHECK: builds the kernels and their harness for
# 64-bit Arm, runs them on an emulated CPU (NEON against plain C, bit for bit),
# and compares the digests of all results with those of CHECK, the same harness
# built for this machine.
root=$1
out=$2
check=$3
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
  command -v $tool > /dev/null || {
    echo "skipped: $tool is not installed (packages gcc-aarch64-linux-gnu," \
      "libc6-dev-arm64-cross and qemu-user)"
    exit 77
  }
done
unset PEN_ISA
cd "$root" || exit 1
arm_gcc() {
  aarch64-linux-gnu-gcc -O2 -std=gnu11 -D_GNU_SOURCE -Wall -Wextra \
    -Wno-unused-parameter -Wno-psabi -ffp-contract=off -fno-math-errno -I. "$@"
}
for level in scalar neon; do # one source, a row for each level
  for format in split32 bf16 int8; do
    arm_gcc -DPEN_CPU_ISA=$level -c "kernels/cpu/state_$format.c" \
      -o "$out/check-arm-$format-$level.o" || exit 1
  done
done
arm_gcc -static -o "$out/check-arm" "$out"/check-arm-*-*.o tests/check/check*.c kernels/isa.c kernels/adamw.c \
  kernels/state.c kernels/state_fp32.c \
  kernels/cast.c kernels/gradient.c kernels/ref/adamw.c kernels/ref/cast.c \
  kernels/ref/gradient.c kernels/cpu/*_neon.c base/error.c -lm || exit 1
qemu-aarch64 "$out/check-arm" > "$out/check-arm.txt"
result=$?
cat "$out/check-arm.txt"
[ $result -eq 0 ] || exit $result

digests() { sed -n 's/^ok *\([^ ]*\) .*digest/\1/p' "$1" | sort -u; }
"$check" > "$out/check-native.txt"
digests "$out/check-arm.txt" > "$out/digests-arm.txt"
digests "$out/check-native.txt" > "$out/digests-native.txt"
if [ ! -s "$out/digests-native.txt" ]; then
  echo "no digests to compare: this machine has plain C alone"
elif ! diff "$out/digests-arm.txt" "$out/digests-native.txt"; then
  echo "Arm and this machine differ"
  exit 1
fi
