#!/bin/sh
# Three models trained with onehot's gradients. First the embedding table of a real text, twice: from the shell, and from a C
# program written against the aclnn headers; both must agree bit for bit and with the definition in double. Then a
# classifier of the pixels of a real picture, from a C++ program; loss and gradient are computed once more from the shell.
# Last a model of the next word of the text, out of its whole vocabulary, from a C++ program; the shell and a C program
# written against the aclnn headers compute one of its steps once more.
#
#   scripts/demo.sh [-o DIR] [-d DIVISOR] [-e EPOCHS] [BUILD [TEXT...]]
#
#   BUILD     a configured and built tree, build/release if not given
#   TEXT      files to take the words from; if not given, those of the Debian package fortunes
#   DIR       where the files go, BUILD/demo if not given
#   DIVISOR   what the picture is reduced by, 2 if not given
#   EPOCHS    how often the model of the next word goes through the text, 2 if not given: more lower the loss of the text,
#             but not that of words held out
#
# The pixels are left out, and a line says so, where the pictures are not installed or the program could not be built.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
fail() {
  echo "demo: $*" >&2
  exit 1
}

out=
divisor=2
epochs=2
while getopts o:d:e: option; do
  case $option in
    o) out=$OPTARG ;;
    d) divisor=$OPTARG ;;
    e) epochs=$OPTARG ;;
    *) exit 2 ;; # getopts has said why
  esac
done
shift $((OPTIND - 1))
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
word_model=$build/examples/word_model
word_step=$build/examples/aclnn_word_step
for binary in "$onehot" "$program" "$word_model" "$word_step"; do
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
rm -f "$out"/*.log # measure.py appends to some of these
cbow() { "$python" "$root/scripts/demo/cbow.py" "$@"; }
words() { "$python" "$root/scripts/demo/words.py" "$@"; }
measured() { "$python" "$root/scripts/demo/measure.py" "$@"; }
best() { sort -n "$1" | head -n 1 | awk '{ printf "%d ms, peak memory %d MB", $1, $2 }'; }
falls() { echo "$1" | awk -F ' -> ' '{ for (k = 2; k <= NF; ++k) if ($k >= $(k - 1)) exit 1 }' || fail "a step raised the loss"; }

echo "The gradient of an embedding table on real text"
echo
cbow text "$out" $batch $width "$@" >"$out/text.log"
mkdir -p "$out/words/shell"
words text "$out/words/words.npy" "$@"
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
falls "$losses"
echo "result  1 and 2 have the same bits: the first gradient and the table after $steps steps"
cbow check table.npy tokens.npy grad.first.npy dW.first.npy >check.log
sed '1s/^/        against the definition in double: /; 2,$s/^/        /' check.log
echo

echo "A classifier of the pixels of a real picture: which time zone is this?"
echo
picture=/usr/share/xplanet/images/earth.jpg
map=/usr/share/libtimezonemap/ui/olsen_map.png
classifier=$build/examples/pixel_classifier
missing=
for file in "$classifier" "$picture" "$map"; do
  [ -e "$file" ] || missing=$file
done
if [ -n "$missing" ]; then
  echo "left out: $missing is not there; scripts/install-deps brings the pictures, libjpeg and libpng"
else
  steps=20
  mkdir -p pixels
  "$classifier" "$picture" "$map" "$divisor" $steps pixels >classifier.log
  echo "picture earth.jpg of the Debian package xplanet-images, NASA's Blue Marble"
  echo "labels  olsen_map.png of the Debian package libtimezonemap-data"
  sed -n '1,3s/^/        /p' classifier.log
  echo "model   softmax of a product with the features, cross entropy; gradient descent with momentum"
  echo

  echo "3  From C++ against the native headers, examples/pixel_classifier.cpp (times: the fastest step)"
  sed -n '$s/^/   /p' classifier.log
  # Lines "step 7: loss 0.433824187, right 79.79 % of the pixels, 92.77 % in the mean of the classes".
  losses=$(awk '/^step/ { printf "%s%.5f", n++ ? " -> " : "", $4 }' classifier.log)
  echo "   $steps steps take the loss from $(echo "$losses" | sed 's/\(\([^>]*>\)\{5\}\).*>/\1 ... ->/')"
  awk '/^step/ { if (!n++) { all = $6; mean = $11 } }
       END { printf "   right: from %s %% to %s %% of the pixels, from %s %% to %s %% in the mean of the classes\n", all, last_all, mean, last_mean }
       /^step/ { last_all = $6; last_mean = $11 }' classifier.log
  sed -n 's/^slope/   after the first step: slope/p' classifier.log
  echo

  echo "4  From the shell, through .npy files (times: whole commands)"
  cd pixels
  rm -f ./*.log
  options="--target target.npy --weight weight.npy --ignore-index 255"
  # shellcheck disable=SC2086 # options are words
  measured nll.log "$onehot" nll-loss --input log_probability.npy $options --out loss.npy --out-dtype f64
  # shellcheck disable=SC2086
  measured nll-backward.log "$onehot" nll-loss-backward --like log_probability.npy $options --out nll_gradient.npy
  echo "   onehot nll-loss --input log_probability.npy --out loss.npy --out-dtype f64 \\"
  echo "          $options"
  echo "      $(best nll.log)"
  echo "   onehot nll-loss-backward --like log_probability.npy --out nll_gradient.npy \\"
  echo "          $options"
  echo "      $(best nll-backward.log)"
  cd ..
  echo

  falls "$losses"
  loss=$(sed -n "s/^step $steps: loss \([^,]*\),.*/\1/p" classifier.log)
  right=$(sed -n "s/^step $steps:.* right \([^ ]*\) .*/\1/p" classifier.log)
  "$python" "$root/scripts/demo/pixels.py" pixels "$loss" "$right" >pixels.log
  echo "result  the loss falls in each step, and ends at $loss"
  sed 's/^/        /' pixels.log
  echo "        pixels/labels.png and pixels/prediction.png show the classes"
fi
echo

echo "A model of the next word of the text"
echo
cd words
rm -f ./*.log
"$word_model" words.npy 1024 "$epochs" . >model.log
rows=$(awk 'NR == 1 { gsub(",", ""); print $1 }' model.log)
sed -n '1s/^/text    /p; 2s/^/        /p' model.log
echo "model   vectors of the 4 words before make one; its products with the vectors of all words are the logits: one table for both"
echo

echo "5  From C++ against the native headers, examples/word_model.cpp: onehot::LinearCrossEntropy, loss and gradients at once"
sed -n '/^epoch/s/^/   /p' model.log
sed -n '/steps of/s/^/   /p; /^peak/{s/; /\n   /; s/^/   /p}; /^slope/s/^/   /p' model.log
echo

echo "6  From the shell, through .npy files: the next step (times: whole commands)"
measured gather.log "$onehot" embedding --weight table.npy --indices context.npy --out shell/rows.npy
measured head.log "$onehot" linear-cross-entropy --input x.npy --weight table.npy --target target.npy \
  --loss shell/loss.npy --loss-dtype f64 --grad-input shell/dx.npy --grad-weight shell/dtable.npy
measured scatter.log "$onehot" embedding-backward --grad drows.npy --indices context.npy --num-weights "$rows" \
  --accumulate shell/dtable.npy --out shell/dtable.npy
echo "   onehot embedding --weight table.npy --indices context.npy --out rows.npy"
echo "      $(best gather.log)"
echo "   onehot linear-cross-entropy --input x.npy --weight table.npy --target target.npy \\"
echo "          --loss loss.npy --loss-dtype f64 --grad-input dx.npy --grad-weight dtable.npy"
echo "      $(best head.log)"
echo "   onehot embedding-backward --grad drows.npy --indices context.npy --num-weights $rows \\"
echo "          --accumulate dtable.npy --out dtable.npy"
echo "      $(best scatter.log)"
echo

echo "7  From C against the aclnn headers, examples/aclnn_word_step.c: the same step in f16 (times: both phases)"
"$word_step" . >step.log
sed 's/^/   /' step.log
# In the shell again, from what the C program rounded to f16.
"$onehot" embedding --weight table16.npy --indices context.npy --out shell/rows16.npy
"$onehot" linear-cross-entropy --input x16.npy --weight table16.npy --target target.npy --reduction none --grad-loss grad.npy \
  --loss shell/loss16.npy --loss-dtype f32 --grad-input shell/dx16.npy --grad-weight shell/dtable16.npy
"$onehot" embedding-backward --grad drows16.npy --indices context.npy --num-weights "$rows" --out shell/dwords16.npy
echo

for result in shell/*.npy; do
  cmp "$result" "${result#shell/}" || fail "$result and ${result#shell/} differ"
done
# Lines "frequencies alone: loss 7.3378, words held out 7.4305" and
# "epoch 2: loss 6.0077 in the mean; words held out 6.6519, 12.80 % of them right".
awk '/^frequencies/ { least = $4 } /^epoch/ { loss = $4 } END { exit !(loss + 0 < least - 0.5) }' model.log ||
  fail "the loss does not fall clearly below that of frequencies alone"
words check . >check.log
# shellcheck disable=SC2046 # two numbers
"$python" "$root/scripts/demo/curve.py" losses.csv losses.svg $(sed -n 's/^frequencies alone: loss \(.*\), words held out /\1 /p' model.log)
echo "result  $(awk '/^frequencies/ { least = $4; held_least = $8 } /^epoch/ { loss = $4; held = $11 }
  END { printf "the loss falls to %.2f (frequencies alone: %.2f), that of words held out to %.2f (%.2f)", loss, least, held, held_least }' model.log)"
echo "        5 and 6 have the same bits: rows, loss, both gradients; and so have 7 and the shell in f16"
echo "        5 against the definition in double:"
sed 's/^/        /' check.log
echo "        words/losses.csv and words/losses.svg are the curve of the loss"
cd ..
echo
echo "files   $out"
