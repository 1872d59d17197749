#!/bin/sh
# The gradient of an embedding table on real text, twice: from the shell, and from a C program written against the aclnn
# headers. Both must agree bit for bit and with the definition in double.
#
#   scripts/demo.sh [-o DIR] [BUILD [TEXT...]]
#
#   BUILD   a configured and built tree, build/release if not given
#   TEXT    files to take the words from; if not given, those of the Debian package fortunes
#   DIR     where the files go, BUILD/demo if not given
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
fail() {
  echo "demo: $*" >&2
  exit 1
}

out=
if [ "${1:-}" = -o ]; then
  [ $# -ge 2 ] || fail "-o needs a directory"
  out=$2
  shift 2
fi
build=${1:-$root/build/release}
[ $# -eq 0 ] || shift
[ -d "$build" ] || fail "$build is not there: run make demo, which builds it"
build=$(cd "$build" && pwd)
out=${out:-$build/demo}
if [ $# -gt 0 ]; then
  source=$*
else
  source="Debian package fortunes"
  # shellcheck disable=SC2046 # one word per file: these names hold no spaces
  set -- $(dpkg -L fortunes 2>/dev/null | grep '^/usr/share/games/fortunes/[^./]*$' || true)
  [ $# -gt 0 ] || fail "the Debian package fortunes is not installed: run scripts/install-deps, or name text files"
fi

onehot=$build/cli/onehot
program=$build/examples/aclnn_embedding_demo
for binary in "$onehot" "$program"; do
  [ -x "$binary" ] || fail "$binary is not there: run make demo, which builds it"
done
# The python3 that comes first may be one without NumPy while Debian's has it.
for python in python3 /usr/bin/python3; do
  "$python" -c 'import numpy' 2>/dev/null && break
  [ "$python" != /usr/bin/python3 ] || fail "NumPy is not there: run scripts/install-deps"
done

batch=65536 # tokens
width=128
steps=5
rate=10 # a rate of 30 no longer converges: there the most frequent word overshoots
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out/gather.log" "$out/backward.log" # measure.py appends to these
cbow() { "$python" "$root/scripts/demo/cbow.py" "$@"; }
measured() { "$python" "$root/scripts/demo/measure.py" "$@"; }
best() { sort -n "$1" | head -n 1 | awk '{ printf "%d ms, peak memory %d MB", $1, $2 }'; }

echo "The gradient of an embedding table on real text"
echo
cbow text "$out" $batch $width "$@" >"$out/text.log"
cd "$out"
{
  read -r line && echo "text    $source: $line"
  read -r line && echo "batch   $line"
  read -r line && echo "        $line"
  read -r line && echo "sizes   $line"
} <text.log
rows=$(wc -l <vocabulary.txt)
echo "loss    squared error of a word's vector against the mean of its 2 + 2 neighbours' vectors"
echo

echo "1  From the shell, through .npy files (times: whole commands, the fastest step)"
cp table.npy trained.npy
losses=
step=0
while :; do
  measured gather.log "$onehot" embedding --weight trained.npy --indices tokens.npy --out rows.npy
  losses="$losses${losses:+ -> }$(cbow loss rows.npy grad.npy)"
  [ $step -lt $steps ] || break
  measured backward.log "$onehot" embedding-backward --grad grad.npy --indices tokens.npy --num-weights "$rows" --out dW.npy
  if [ $step -eq 0 ]; then
    cp grad.npy grad.first.npy
    cp dW.npy dW.first.npy
  fi
  cbow step trained.npy dW.npy $rate
  step=$((step + 1))
done
echo "   onehot embedding --weight table.npy --indices tokens.npy --out rows.npy"
echo "      $(best gather.log)"
echo "   onehot embedding-backward --grad grad.npy --indices tokens.npy --num-weights $rows --out dW.npy"
echo "      $(best backward.log)"
echo "   $steps steps of gradient descent take the loss from $losses"
echo

echo "2  From C against the aclnn headers, examples/aclnn_embedding_demo.c (times: both phases, the fastest step)"
"$program" tokens.npy table.npy $steps $rate dW.first.aclnn.npy trained.aclnn.npy >aclnn.log
{
  read -r c_losses
  read -r line && echo "   $line"
} <aclnn.log
echo "   the loss goes from $c_losses"
echo

cmp dW.first.npy dW.first.aclnn.npy || fail "the two gradients differ"
cmp trained.npy trained.aclnn.npy || fail "the two trained tables differ"
[ "$losses" = "$c_losses" ] || fail "the two lists of losses differ"
echo "$losses" | awk -F ' -> ' '{ for (k = 2; k <= NF; ++k) if ($k >= $(k - 1)) exit 1 }' || fail "a step raised the loss"
echo "result  1 and 2 have the same bits: the first gradient and the table after $steps steps"
cbow check table.npy tokens.npy grad.first.npy dW.first.npy >check.log
sed '1s/^/        against the definition in double: /; 2,$s/^/        /' check.log
echo "files   $out"
