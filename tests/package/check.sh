#!/bin/bash
# check.sh NAME: one check of the installed package; tests.cmake sets the environment and lists the names.
#
# The programs are those of examples/, with the case worked by hand there: indices 2 0 2 put the gradient rows
# (1 2), (10 20), (100 200) into rows (10 20), (0 0), (101 202).
set -euo pipefail

prefix=$WORK/prefix
compat=$prefix/$LIBDIR/onehot/compat
environment=$prefix/share/onehot/aclnn-env.sh
names=(libascendcl.so libnnopbase.so libopapi.so libacl_op_compiler.so)

fail() {
  echo "$*" >&2
  exit 1
}

# copy_sources: a fresh directory for the check with its build files and the programs; goes there.
copy_sources() {
  local check=$1
  rm -rf "${WORK:?}/$check"
  mkdir -p "$WORK/$check"
  cd "$WORK/$check"
  [ ! -d "$ROOT/tests/package/$check" ] || cp "$ROOT/tests/package/$check"/* .
  cp "$ROOT/examples/aclnn_embedding_dense_backward.c" client.c
  cp client.c client.cpp
  cp "$ROOT/examples/native_embedding_backward.cpp" native.cpp
}

# expect_client PROGRAM..., expect_native PROGRAM...: runs each; its output is that of the example.
expect() {
  local expected=$1 program
  shift
  for program in "$@"; do
    "$program" | diff "$ROOT/examples/$expected.expected" - || fail "$program prints other numbers"
  done
}
expect_client() { expect aclnn_embedding_dense_backward "$@"; }
expect_native() { expect native_embedding_backward "$@"; }

# declared: the functions that the installed headers of the C face declare. The preprocessor's lines say which file a text
# comes from, so functions of the system's headers stay out. Without attributes and bodies, the name of a function is what
# stands before the first parenthesis of a declaration; typedefs of function pointers have none there.
declared() {
  (cd "$prefix/include" && find acl aclnn aclnnop -name '*.h' | sed 's/.*/#include "&"/') |
    "$CC" -std=c99 -E -I"$prefix/include" -x c - |
    awk -v prefix="$prefix/include/" '/^# [0-9]+ "/ { ours = index($3, prefix) == 2; next } ours' |
    tr '\n' ' ' | sed -E 's/__attribute__ *\(\([a-z_]*(\([^()]*\))?\)\)//g; s/\{[^{}]*\}/;/g' | tr ';' '\n' | grep -v typedef |
    sed -nE 's/^[^(]*[^A-Za-z0-9_(]([A-Za-z_][A-Za-z0-9_]*) *\(.*$/\1/p' | sort -u
}

# Functions of the C face that no header declares: clients look them up by name and call them through types of their own.
hooks="InitHugeMemThreadLocal ReleaseHugeMem UnInitHugeMemThreadLocal"

# exported LIBRARY: the names it defines for others.
exported() { nm -D --defined-only "$1" | awk '{ print $NF }' | sed 's/@.*//' | sort -u; }

check_install() {
  rm -rf "$prefix" "$prefix.first"
  mkdir -p "$WORK"
  "$CMAKE" --install "$BUILD" --prefix "$prefix.first" >"$WORK/install.log"
  mv "$prefix.first" "$prefix"
  # Nothing points out of the prefix or at nothing. pwd -P, since links are resolved.
  local top link
  top=$(cd "$prefix" && pwd -P)
  find "$prefix" -type l | while read -r link; do
    case $(readlink "$link") in /*) fail "$link is an absolute link" ;; esac
    case $(readlink -e "$link") in "$top"/*) ;; *) fail "$link leads nowhere, or out of the prefix" ;; esac
  done
  if grep -rlF "$BUILD" "$prefix" --include='*.cmake' --include='*.pc' --include='*.h' --include='*.info'; then
    fail "the files above name the build tree"
  fi
}

check_destdir() {
  local stage=$WORK/stage
  rm -rf "$stage"
  DESTDIR=$stage "$CMAKE" --install "$BUILD" --prefix /opt/onehot >/dev/null
  diff <(cd "$prefix" && find . | sort) <(cd "$stage/opt/onehot" && find . | sort) || fail "DESTDIR stages other files"
  grep -q "_onehot_prefix=/opt/onehot$" "$stage/opt/onehot/share/onehot/aclnn-env.sh" || fail "aclnn-env.sh has another prefix"
  [ ! -e /opt/onehot/share/onehot/aclnn-env.sh ] || fail "the installation went past DESTDIR"
}

# Every header alone, twice, as both languages, with no other -I.
check_headers() {
  cd "$prefix/include"
  local header count=0
  for header in $(find acl aclnn aclnnop -name '*.h'); do
    count=$((count + 1))
    printf '#include "%s"\n#include "%s"\ntypedef int not_empty;\n' "$header" "$header" |
      "$CC" -std=c99 -Wall -Wextra -pedantic -Werror -fsyntax-only -I. -x c -
    printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
      "$CXX" -std=c++11 -Wall -Wextra -pedantic -Werror -fsyntax-only -I. -x c++ -
  done
  for header in onehot/*.h; do
    count=$((count + 1))
    printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
      "$CXX" -std=c++20 -Wall -Wextra -pedantic -Werror -fsyntax-only -I. -x c++ -
  done
  local operator
  for operator in embedding embedding_dense_backward nll_loss nll_loss_backward nll_loss2d nll_loss2d_backward \
    fused_linear_online_max_sum fused_cross_entropy_loss_with_max_sum fused_linear_cross_entropy_loss_grad; do
    header=aclnnop/aclnn_$operator.h
    [ -f "$header" ] && [ -f "${header/aclnnop/aclnnop/level2}" ] || fail "$header is not at both of its places"
  done
  # The toolkit's include/aclnn is searched too by some builds, so that headers are found without their folder.
  printf '#include "acl_meta.h"\n#include "aclnn_base.h"\n' | "$CC" -std=c99 -fsyntax-only -I. -Iaclnn -x c -
  echo "$count headers"
}

check_find_package() {
  copy_sources find_package
  "$CMAKE" -S . -B build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >configure.log || { cat configure.log; false; }
  "$CMAKE" --build build >build.log || { cat build.log; false; }
  expect_client build/c99 build/cxx11
  expect_native build/native
}

check_pkg_config() {
  copy_sources pkg_config
  export PKG_CONFIG_PATH=$prefix/$LIBDIR/pkgconfig
  [ "$(pkg-config --modversion onehot onehot_aclnn | sort -u)" = "$VERSION" ] || fail "pkg-config gives another version"
  make
  export LD_LIBRARY_PATH=$prefix/$LIBDIR
  expect_client ./c99 ./cxx11
  expect_native ./native
  [ -f "$(pkg-config --variable=compatdir onehot_aclnn)/libopapi.so" ] || fail "compatdir does not hold libopapi.so"
}

# aclnn-env.sh from every kind of shell at hand: same variables, once only, no leftovers, no complaint under -eu.
check_environment() {
  local variables='"$ASCEND_CUSTOM_PATH|$ASCEND_TOOLKIT_HOME|$ASCEND_HOME_PATH|$CANN_INSTALL_DIR|$LD_LIBRARY_PATH|$LIBRARY_PATH|$CPATH"'
  local root=$prefix/share/onehot
  root=$(cd "$root" && pwd -P)
  local home=$root/ascend-toolkit/latest
  local expected="$root|$home|$home|$home|$home/lib64:/there|$home/lib64|$home/include"
  local shell got
  for shell in bash "bash --posix" sh dash "busybox sh" zsh; do
    command -v ${shell%% *} >/dev/null || continue
    got=$(env -u LIBRARY_PATH -u CPATH LD_LIBRARY_PATH=/there \
      $shell -euc ". '$environment'; . '$environment'; echo $variables; set | grep -i '^_onehot' || true") ||
      fail "$shell: sourcing fails"
    [ "$got" = "$expected" ] || fail "$shell: expected $expected, got $got"
  done
  # From a directory above, by a relative path, and through a link.
  cd "$prefix/share"
  got=$(bash -c '. onehot/aclnn-env.sh; echo "$ASCEND_HOME_PATH"')
  [ "$got" = "$home" ] || fail "by a relative path: $got"
  ln -sfn "$environment" "$WORK/link.sh"
  got=$(bash -c ". '$WORK/link.sh'; echo \"\$ASCEND_HOME_PATH\"")
  [ "$got" = "$home" ] || fail "through a link: $got"
  got=$(cd / && ONEHOT_PREFIX=/elsewhere sh -c ". '$environment'; echo \"\$ASCEND_HOME_PATH\"")
  [ "$got" = /elsewhere/share/onehot/ascend-toolkit/latest ] || fail "ONEHOT_PREFIX is not taken: $got"
  # Where clients read versions.
  grep -qE '^version=[0-9]+\.[0-9]+\.[0-9A-Za-z.]+$' "$home"/*-linux/ascend_toolkit_install.info || fail "no toolkit version"
  grep -q '^Version=' "$root/driver/version.info" || fail "no driver version"
}

# Once as sourced, once without the compiler's search paths, which would hide a directory that is not where it should be.
check_vendor_cmake() {
  copy_sources vendor_cmake
  . "$environment"
  local build
  for build in sourced bare; do
    [ $build = sourced ] || unset CPATH LIBRARY_PATH
    "$CMAKE" -S . -B $build >configure.log || { cat configure.log; false; }
    "$CMAKE" --build $build >build.log || { cat build.log; false; }
    expect_client $build/client_c $build/client_cpp
  done
}

check_vendor_make() {
  copy_sources vendor_make
  # make runs sh, and so does the sourcing here.
  sh -euc ". '$environment'; make fixed; unset CPATH LIBRARY_PATH; make toolkit acllib fwkacllib"
  . "$environment"
  expect_client ./fixed ./toolkit ./acllib ./fwkacllib
}

# A program that was linked against the vendor's libraries asks for them by their names. Stand-ins with those names serve for
# linking; at run time the compatibility directory takes their place.
check_vendor_binary() {
  copy_sources vendor_binary
  mkdir stand-ins
  declared | sed 's/.*/void &(void); void &(void) {}/' >stand-in.c
  local name
  for name in "${names[@]}"; do
    "$CC" -w -fno-builtin -shared -fPIC stand-in.c -Wl,-soname,$name -o stand-ins/$name
  done
  "$CC" -std=c99 -I"$prefix/include" client.c -o client -Wl,--no-as-needed -Lstand-ins \
    -lascendcl -lnnopbase -lopapi -lacl_op_compiler
  [ "$(readelf -d client | grep -cE 'NEEDED.*(ascendcl|nnopbase|opapi|acl_op_compiler)')" = 4 ] || fail "not linked by name"
  if readelf -d client | grep -q onehot; then fail "the program knows onehot"; fi
  . "$environment"
  expect_client ./client
}

# What the libraries export: the native one its namespace, the C face what its headers declare, and nothing of anybody else's.
check_exports() {
  local symbols
  symbols=$(nm -D --defined-only -C "$prefix/$LIBDIR/libonehot.so" | sed 's/^[0-9a-f]* *[A-Za-z] //' |
    grep -vE '^((typeinfo|typeinfo name|vtable|guard variable) for )?onehot::' || true)
  [ -z "$symbols" ] || fail "libonehot exports what is not its own:"$'\n'"$symbols"
  [ "$(exported "$prefix/$LIBDIR/libonehot.so" | wc -l)" -gt 10 ] || fail "libonehot exports next to nothing"
  { declared; printf '%s\n' $hooks; } | sort -u | diff - <(exported "$prefix/$LIBDIR/libonehot_aclnn.so") ||
    fail "libonehot_aclnn does not export (<), or no header declares (>), the names above"
}

check_dlopen() {
  { declared; printf '%s\n' $hooks; } >"$WORK/names"
  # Were the extraction at fault, the list would still hold what clients need most.
  local name
  for name in aclInit aclrtMalloc aclCreateTensor aclnnInit aclDestroyAclOpExecutor aclrtGetSysParamOpt aclSetCompileopt \
    aclnn{EmbeddingDenseBackward,Embedding,NLLLoss,NLLLossBackward,NLLLoss2d,NLLLoss2dBackward}{GetWorkspaceSize,} \
    aclnnFused{LinearOnlineMaxSum,CrossEntropyLossWithMaxSum,LinearCrossEntropyLossGrad}{GetWorkspaceSize,}; do
    grep -qx $name "$WORK/names" || fail "no header declares $name"
  done
  "$CC" -std=c99 -Wall -Wextra -Werror "$ROOT/tests/package/dlopen.c" -o "$WORK/dlopen" -ldl
  # By path and, as clients do, by bare name.
  "$WORK/dlopen" "${names[@]/#/$compat/}" <"$WORK/names"
  LD_LIBRARY_PATH=$compat "$WORK/dlopen" "${names[@]}" <"$WORK/names"
}

check_ctypes() {
  "$PYTHON" "$ROOT/tests/package/ctypes_client.py" "$compat"
  . "$environment"
  "$PYTHON" "$ROOT/tests/package/ctypes_client.py"
}

# The tool finds its library from where it lies.
check_tool() {
  "$prefix/bin/onehot" --version | grep -qF "$VERSION" || fail "onehot --version does not print $VERSION"
}

check_$1
