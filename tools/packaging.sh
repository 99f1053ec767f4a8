#!/bin/sh
# SPDX-License-Identifier: MIT
# Proves that what is installed works, in a temporary folder, from a copy of this tree's files, with
# a clean environment and (where the system allows it) without a network:
#   make install into a PREFIX and through DESTDIR; luarocks make; make rock and installing the rock.
# Ends with 'N passed, N failed'. Arguments: the Luas to prove it on (all that are known otherwise).
set -u
cd "$(dirname "$0")/.." || exit 1
luas=${*:-luajit lua5.3 lua5.4}

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
source=$scratch/source
mkdir "$source" "$scratch/home" "$scratch/elsewhere"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$source"
# What luarocks packs is a commit.
(cd "$source" && git init -q && git add -A && git -c user.name=- -c user.email=- commit -qm packed)

offline=''
unshare -rn true 2>/dev/null && offline='unshare -rn'
# (Without the plugin for GPUs, which nvcc takes minutes for: one line of the recipe installs it.)
clean="$offline env -i PATH=$PATH HOME=$scratch/home LC_ALL=C.UTF-8 CUDA=0"
passed=0 failed=0
log=$scratch/log

check() { # check NAME COMMAND...: one test; what it printed is shown when it fails
  name=$1 && shift
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1)) && echo "ok   $name"
  else
    failed=$((failed + 1)) && echo "FAIL $name" && tail -n 40 "$log"
  fi
}

in_source() (cd "$source" && $clean "$@")

# uses ROOT LUA: require "cnn" and bin/cnn of an installation, from another folder.
program='local cnn = require "cnn"
local x = cnn.ones(2, 3, {requires_grad = true})
local y = (x * 2):sum()
y:backward()
assert(x.grad:sum():item() == 12)
print("fine")'
uses() (
  root=$1 lua=$2
  abi=$($lua -e 'io.write(_VERSION:match("%d.%d"))')
  cd "$scratch/elsewhere" || exit 1
  printf '%s\n' "$program" >program.lua
  $clean LUA_PATH="$root/share/lua/$abi/?.lua;$root/share/lua/$abi/?/init.lua" \
    LUA_CPATH="$root/lib/lua/$abi/?.so" "$lua" program.lua || exit 1
  [ "$($clean CNN_LUA="$lua" "$root/bin/cnn" program.lua)" = fine ] || exit 1
  bytes=$(find "$root/lib/lua/$abi/cnn" "$root/share/lua/$abi/cnn" -type f -printf '%s\n' |
    awk '{n += $1} END {print n}')
  echo "$bytes bytes installed"
  [ "$bytes" -lt 5000000 ]
)

for lua in $luas; do
  version=$($lua -e 'io.write(_VERSION:match("%d.%d"))')

  check "$lua: make install" in_source make LUA="$lua" PREFIX="$scratch/prefix-$lua" install
  check "$lua: it works there" uses "$scratch/prefix-$lua" "$lua"
  check "$lua: make install through DESTDIR" \
    in_source make LUA="$lua" PREFIX=/opt/cnn DESTDIR="$scratch/dest-$lua" install
  check "$lua: it works there" uses "$scratch/dest-$lua/opt/cnn" "$lua"
  check "$lua: make uninstall" in_source make LUA="$lua" PREFIX="$scratch/prefix-$lua" uninstall
  check "$lua: leaves no file" [ -z "$(find "$scratch/prefix-$lua" -type f)" ]

  check "$lua: luarocks make" \
    in_source luarocks --lua-version="$version" --tree="$scratch/tree-$lua" make
  check "$lua: it works there" uses "$scratch/tree-$lua" "$lua"
done

# A rock is built from nothing each time: once is enough, but for the last Lua, whose binding differs.
check "make rock" in_source make rock
for lua in ${luas%% *} ${luas##* }; do
  [ ! -d "$scratch/rock-$lua" ] || continue
  version=$($lua -e 'io.write(_VERSION:match("%d.%d"))')
  check "$lua: the source rock installs" \
    in_source luarocks --lua-version="$version" --tree="$scratch/rock-$lua" install \
    cnn-scm-1.src.rock
  check "$lua: it works there" uses "$scratch/rock-$lua" "$lua"
done

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
