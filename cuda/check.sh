#!/bin/bash
# SPDX-License-Identifier: MIT
# Checks the GPU backend on a machine with a GPU, in under 8 minutes, and writes what it finds, step by
# step, to cuda_check.md in the folder that $OUT names (default: build). A CUDA image with PyTorch is
# enough:
#
#   cuda/check.sh             Lua and gcc, make, nvcc are there (apt-get install luajit libluajit-5.1-dev)
#   cuda/check.sh --pack      on the machine where cnn is built: puts an interpreter, busted, the core and
#                             the plugin (for CUDA_ARCHS, 90 unless told) into build/pack. Taken along
#                             with the tree it serves a machine that has no Lua and can fetch none
#   cuda/check.sh --simulate  rehearses all of it on the simulator, with tiny sizes
#
# LUA names an interpreter, CNN_PYTHON a Python that has PyTorch (default: python3).
set -u
cd "$(dirname "$0")/.." || exit 1
LIMIT=${CNN_CHECK_SECONDS:-470}
PACK=build/pack
mode=${1:-}

# What Lua finds by this interpreter: its version as in paths.
abi() { "$1" -e 'io.write(_VERSION:match("%d.%d"))' 2>/dev/null; }

# ---- --pack ------------------------------------------------------------------------------------

if [ "$mode" = --pack ]; then
  set -e
  LUA=${LUA:-luajit}
  V=$(abi "$LUA")
  make modules cuda-plugin LUA="$LUA" CUDA_ARCHS="${CUDA_ARCHS:-90}"
  rm -rf $PACK
  mkdir -p $PACK/bin $PACK/share $PACK/lib $PACK/out/lua/"$V"/cnn
  cp "$(command -v "$LUA")" $PACK/bin/
  cp -r "$(make -s print-LUA_INCDIR LUA="$LUA")" $PACK/include
  cp -L build/release/lua/"$V"/cnn/core.so build/release/lua/"$V"/cnn/cnn_cuda.so $PACK/out/lua/"$V"/cnn/
  ln -s "lua/$V/cnn/cnn_cuda.so" $PACK/out/cnn_cuda.so
  strip -g $PACK/out/lua/"$V"/cnn/*.so
  # busted, and what it loads: whole packages, from where this interpreter finds them
  "$LUA" - $PACK <<'LUA' || echo 'note: packed without busted: specs will be left out'
local pack = arg[1]
require "busted.runner"
for _, name in ipairs { "busted", "luassert", "say", "mediator", "cliargs", "pl", "lfs", "system", "term", "dkjson" } do
  for kind, path in pairs { share = package.path, lib = package.cpath } do
    for folder in path:gmatch "(/[^;?]*)%?%.[^;]+" do
      for _, ending in ipairs { "", ".lua", ".so" } do
        local file = folder .. name .. ending
        os.execute(("[ ! -e %s ] || cp -rnL %s %s/%s/"):format(file, file, pack, kind))
      end
    end
  end
end
LUA
  git rev-parse --short HEAD >$PACK/commit 2>/dev/null || echo unknown >$PACK/commit
  du -sh $PACK
  exit 0
fi

# ---- What is here --------------------------------------------------------------------------------

if [ -z "${LUA:-}" ]; then
  for l in $PACK/bin/luajit luajit lua5.1 lua5.4 lua5.3 lua; do
    if [ -n "$(abi "$l")" ]; then LUA=$l && break; fi
  done
fi
V=$(abi "${LUA:-none}")
if [ -z "$V" ]; then
  echo "cuda/check.sh: there is no Lua here. Install one (apt-get install luajit libluajit-5.1-dev lua-busted)," \
    "name one (LUA=...), or bring one: 'cuda/check.sh --pack' where cnn is built, and build/pack with the tree" >&2
  exit 2
fi
case $LUA in */*) LUA=$(realpath "$LUA") ;; esac
OUT=${OUT:-build}
mkdir -p "$OUT" || exit 1
OUT=$(realpath "$OUT")
TABLE=$OUT/cuda_check.md
python=${CNN_PYTHON:-python3}
built=build/release
small='' tiny=''
if [ "$mode" = --simulate ]; then
  small=--small tiny=--tiny
  export CNN_CUDA_PLUGIN=${CNN_CUDA_PLUGIN:-$PWD/build/sim/plain/cnn_cuda_sim.so}
elif [ -e $PACK/out/cnn_cuda.so ]; then
  built=$PACK/out
fi
# PyTorch's own cuBLASLt and cuDNN serve where the system has none.
for d in $("$python" -c 'import glob, importlib.util as u
s = u.find_spec("nvidia")
print(*(d for p in (s.submodule_search_locations if s else []) for d in glob.glob(p + "/*/lib")))' 2>/dev/null); do
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$d
done
[ -n "${LD_LIBRARY_PATH:-}" ] && export LD_LIBRARY_PATH

use() { # use FOLDER: the build that scripts run on
  built=$1
  export CNN_OUT=$1
  export LUA_PATH="$PWD/lua/?.lua;$PWD/lua/?/init.lua;$PWD/$PACK/share/?.lua;$PWD/$PACK/share/?/init.lua;;"
  export LUA_CPATH="$PWD/$1/lua/$V/?.so;$PWD/$PACK/lib/?.so;;"
}

# ---- Phases --------------------------------------------------------------------------------------

failed=0
say() { printf '%s\n' "$@" >>"$TABLE"; }
left() { echo $((LIMIT - SECONDS)); }

# phase NAME SECONDS SHOWN COMMAND...: its output goes to a log; SHOWN of it (a sed script) to the table.
phase() {
  local name=$1 limit=$2 shown=$3 log status start=$SECONDS
  shift 3
  [ "$limit" -le "$(left)" ] || limit=$(left)
  printf '== %s\n' "$name"
  say '' "## $name" ''
  if [ "$limit" -lt 5 ]; then
    say 'Left out: no time is left.'
    return 1
  fi
  log=$OUT/cuda_check_$(printf '%s' "$name" | tr -cs 'A-Za-z0-9' _).log
  if [ "$shown" = live ]; then # a table, line by line: what was done before a cut stays
    timeout -k 5 "$limit" "$@" 2>"$log" | tee -a "$TABLE"
    status=${PIPESTATUS[0]}
    [ "$status" = 0 ] || tail -n 3 "$log"
  else
    timeout -k 5 "$limit" "$@" >"$log" 2>&1
    status=$?
    sed -n "$shown" "$log" | head -n 60 | sed 's/^/    /' >>"$TABLE"
    [ "$status" = 0 ] || tail -n 20 "$log"
  fi
  say ''
  if [ "$status" = 0 ]; then
    say "Passed in $((SECONDS - start)) s."
  elif [ "$status" = 124 ] || [ "$status" = 137 ]; then
    say "Cut off after $((SECONDS - start)) s."
    failed=1
  else
    say "Failed with status $status after $((SECONDS - start)) s; the end of its output:" ''
    tail -n 12 "$log" | cut -c1-200 | sed 's/^/    /' >>"$TABLE"
    failed=1
  fi
  return "$status"
}
left_out() { # left_out NAME WHY
  printf '== %s: left out: %s\n' "$1" "$2"
  say '' "## $1" '' "Left out: $2."
}

build() {
  local arch headers=()
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
  [ "$LUA" != "$PWD/$PACK/bin/luajit" ] || headers=(LUA_INCDIR="$PWD/$PACK/include")
  make modules cuda-plugin PLUGINS= LUA="$LUA" CUDA_ARCHS="${arch:-90}" "${headers[@]}"
}
available() { "$LUA" -e 'local ok, why = require("cnn").cuda.is_available() if not ok then print(why) os.exit(1) end'; }
tests() { "$LUA" tools/test.lua --lua "$LUA" --out "$built" --logs "$OUT/cuda_check_tests" "$@" specs; }
export -f build available tests
export LUA PACK V OUT

: >"$TABLE"
say '# A check of the GPU backend' ''
[ -z "$tiny" ] || say 'A rehearsal on the simulator: its times mean nothing.' ''
say "- cnn: $(git rev-parse --short HEAD 2>/dev/null || cat $PACK/commit 2>/dev/null || echo 'of no known commit')"
say "- Lua: $("$LUA" -v 2>&1 | head -n 1)"
say "- GPU: $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1 || :)"
say "- nvcc: $(nvcc --version 2>/dev/null | sed -n 's/.*release //p' || :)"

no_gpu() { # no_gpu WHY
  say '' "No GPU is to be had: $1"
  printf 'cuda/check.sh: no GPU is to be had: %s\n' "$1" >&2
  exit 1
}

use $built
problem=
if [ -n "$tiny" ] || [ -e $PACK/out/cnn_cuda.so ]; then
  [ -n "$tiny" ] || say "- build: the one in $PACK"
  problem=$(available 2>&1) || problem=${problem:-it does not load}
fi
if [ -z "$tiny" ] && ! ls /dev/nvidiactl /dev/dxg >/dev/null 2>&1; then
  no_gpu "${problem:-there is no driver}"
fi
if [ -z "$tiny" ] && { [ ! -e $PACK/out/cnn_cuda.so ] || [ -n "$problem" ]; }; then
  [ -z "$problem" ] || say "- the build in $PACK does not serve here: $problem"
  use build/release
  phase 'Building' 180 '/error/p' bash -c build
  problem=$(available 2>&1) || problem=${problem:-it does not load}
fi
[ -z "$problem" ] || no_gpu "$problem"
export built

phase 'Against the CPU' 60 '/^BAD/p; $p' "$LUA" cuda/check/device.lua $small

if "$python" -c 'import torch' 2>/dev/null; then
  phase 'Times, beside PyTorch' 130 live "$python" bench/gpu.py $tiny --seconds 110 --lua "$LUA"
else
  phase 'Times (there is no PyTorch)' 60 p "$LUA" bench/gpu.lua $tiny
fi

if "$LUA" -e 'require "busted.runner"' 2>/dev/null; then
  match=^cuda_ ops='' own=matmul,matmul_to,linear,addmm,baddbmm,conv1d,conv2d,conv3d
  [ -z "$tiny" ] || match=^cuda_spec ops=add,softmax,sum own=matmul
  export CNN_CHECKING=1 TEST_OPS_PARTS
  TEST_OPS_PARTS=$(nproc)
  phase 'Specs of GPUs' 80 '$p; /^----/p' bash -c "tests --match '$match'"
  phase 'Every op against its references' 110 '$p; /^----/p' \
    env CNN_OPS_DEVICE=cuda CNN_OPS_VALUES=1 ${ops:+CNN_OPS=$ops} bash -c 'tests --match ops_spec'
  phase 'Own kernels for products and convolutions' 40 '$p; /^----/p' \
    env CNN_CUDA_LIBRARIES=none CNN_OPS_DEVICE=cuda CNN_OPS_VALUES=1 \
    CNN_OPS=$own bash -c 'tests --match ops_spec'
else
  left_out 'Specs' 'busted is not here (cuda/check.sh --pack brings it along)'
fi

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -n "$tiny" ]; then
  left_out 'compute-sanitizer' 'the simulator checks all kernels itself'
elif [ -z "$sanitizer" ]; then
  left_out 'compute-sanitizer' 'it is not here'
else
  phase 'compute-sanitizer, memcheck' 45 '/ERROR SUMMARY/p; /^BAD/p' \
    "$sanitizer" --tool memcheck --error-exitcode 9 "$LUA" cuda/check/device.lua --small
  phase 'compute-sanitizer, racecheck' 30 '/SUMMARY/p; /^BAD/p' \
    "$sanitizer" --tool racecheck --error-exitcode 9 "$LUA" cuda/check/device.lua --small
fi

say '' "All in $SECONDS s: $([ $failed = 0 ] && echo 'all is well' || echo 'not all is well')."
echo "== $TABLE"
exit $failed
