#!/usr/bin/env bash
# Builds and tests epmoe in an unpacked root of the other Debian release: on 12 that is 13 (trixie), on 13 it is 12
# (bookworm). The root stays in a cache directory, so only the first run downloads anything. Needs root (chroot,
# mounts), but neither systemd nor a container engine; what it mounts lives in a namespace of its own and is gone
# with it.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: scripts/other_release.sh [options] [-- command [args…]]

Runs `scripts/test.sh --quick`, or the given command, in the source tree inside a root of the other Debian release.

  --release NAME  bookworm or trixie instead of "the other one"
  --fresh         throw the cached root and its build directory away first
  --prepare       make the root and install the product's packages, run nothing
  --no-setup      do not run scripts/setup.sh inside (the command needs no packages)
  --where         print the directory of the root and stop

environment: XDG_CACHE_HOME          the root lives in $XDG_CACHE_HOME/epmoe/other_release (default: ~/.cache/…)
             EPMOE_DEBIAN_MIRROR     mirror to use instead of the one in this machine's apt sources
             EPMOE_CXX, CC, CXX      passed on to the command, so another compiler can be tried
USAGE
}
say() { printf 'other_release: %s\n' "$*" >&2; }
die() { say "$*"; exit 2; }

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
release="" fresh=0 prepare=0 setup=1 where=0
while (($#)); do
  case $1 in
    --release) release=${2:?--release needs a name}; shift ;;
    --fresh) fresh=1 ;;
    --prepare) prepare=1 ;;
    --no-setup) setup=0 ;;
    --where) where=1 ;;
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    *) usage >&2; die "unknown option '$1'" ;;
  esac
  shift
done
if (($#)); then command=("$@"); else command=(scripts/test.sh --quick); fi

# Which release this machine runs, and which is the other one.
[[ -r /etc/os-release ]] || die "no /etc/os-release: this is for Debian 12 and 13"
# shellcheck disable=SC1091
host_release=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-unknown}")
if [[ -z $release ]]; then
  case $host_release in
    bookworm) release=trixie ;;
    trixie) release=bookworm ;;
    *) die "this machine runs '$host_release', neither bookworm nor trixie; name one with --release" ;;
  esac
fi
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/epmoe/other_release
root=$cache/$release
build=$cache/$release-build
if ((where)); then printf '%s\n' "$root"; exit 0; fi

((EUID == 0)) || die "needs root (debootstrap, chroot and mounts); try: sudo $0"
for tool in debootstrap:debootstrap unshare:util-linux chroot:coreutils; do
  command -v "${tool%%:*}" > /dev/null || die "needs ${tool%%:*}; install it with: apt-get install ${tool##*:}"
done

# Mirrors come from this machine's own apt sources; the release name in them is replaced.
apt_lines() { apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | sort -u; }
mirror=${EPMOE_DEBIAN_MIRROR:-$(apt_lines | awk -v r="$host_release" '$2 == r || $2 == "stable" {print $1; exit}')}
[[ -n $mirror ]] || die "found no Debian mirror for '$host_release' in the apt sources; set EPMOE_DEBIAN_MIRROR"
security=$(apt_lines | awk -v r="$host_release-security" '$2 == r {print $1; exit}')

if ((fresh)); then
  say "removing $root and $build"
  rm -rf --one-file-system "$root" "$build"
fi
mkdir -p "$cache" "$build"
exec 9> "$cache/$release.lock"
flock -n 9 || { say "another run uses $root; waiting"; flock 9; }

if [[ ! -e $root/.epmoe-complete ]]; then
  say "unpacking $release into $root (once, some minutes)"
  rm -rf --one-file-system "$root"
  debootstrap --variant=minbase --include=ca-certificates "$release" "$root" "$mirror" > "$cache/$release.log" 2>&1 ||
    { tail -n 20 "$cache/$release.log" >&2; die "debootstrap failed; whole log: $cache/$release.log"; }
  touch "$root/.epmoe-complete"
fi

# Name resolution and package sources as on this machine, at every run, since they may have changed.
for file in resolv.conf hosts hostname; do
  if [[ -e /etc/$file ]]; then rm -f "$root/etc/$file"; cat "/etc/$file" > "$root/etc/$file"; fi
done
{
  echo "deb $mirror $release main"
  echo "deb $mirror $release-updates main"
  [[ -z $security ]] || echo "deb $security $release-security main"
} > "$root/etc/apt/sources.list"
apt-config dump | grep -E '^Acquire::(https?|ftp)::(Proxy|Verify|CaInfo)' > "$root/etc/apt/apt.conf.d/90host" || true
# A certificate authority that only this machine knows must be known inside as well.
if compgen -G '/usr/local/share/ca-certificates/*.crt' > /dev/null; then
  mkdir -p "$root/usr/local/share/ca-certificates"
  cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
fi
mkdir -p "$root/epmoe" "$source_dir/build"

setup_stamp=none
if ((setup)) && [[ -e $source_dir/scripts/setup.sh ]]; then
  setup_stamp=$(sha256sum < "$source_dir/scripts/setup.sh" | cut -d' ' -f1)
fi

inside() {  # root, source, build, setup stamp, prepare, command…: runs in the new namespaces
  set -euo pipefail
  root=$1 source=$2 build=$3 stamp=$4 prepare=$5
  shift 5
  # A private /proc and /dev/shm where the kernel allows them, else this machine's own. MPI needs both.
  mount -t proc proc "$root/proc" 2> /dev/null || mount --rbind /proc "$root/proc"
  mount --rbind /sys "$root/sys" 2> /dev/null || echo "other_release: no /sys inside; hwloc sees less" >&2
  mount --rbind /dev "$root/dev"
  mkdir -p "$root/dev/shm"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" 2> /dev/null || true
  mount -t tmpfs -o mode=1777 tmpfs "$root/tmp" 2> /dev/null || true
  touch "$root/dev/shm/.epmoe" 2> /dev/null || { echo "other_release: /dev/shm is not writable inside" >&2; exit 2; }
  rm -f "$root/dev/shm/.epmoe"
  mount --bind "$source" "$root/epmoe"
  mount --bind "$build" "$root/epmoe/build"  # the two releases must not share build trees
  run=(chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
       LANG=C.UTF-8 TERM="${TERM:-dumb}" DEBIAN_FRONTEND=noninteractive EPMOE_OTHER_RELEASE=1
       GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*')
  for name in CI CC CXX EPMOE_CXX CXXFLAGS CMAKE_BUILD_PARALLEL_LEVEL CTEST_PARALLEL_LEVEL http_proxy https_proxy no_proxy; do
    if [[ -n ${!name:-} ]]; then run+=("$name=${!name}"); fi
  done
  if [[ $stamp != none && $(cat "$root/.epmoe-setup" 2> /dev/null) != "$stamp" ]]; then
    echo "other_release: installing the product's packages" >&2
    "${run[@]}" bash -c 'cd /epmoe && apt-get update -qq && scripts/setup.sh' >&2
    echo "$stamp" > "$root/.epmoe-setup"
  fi
  if ((prepare)); then return 0; fi
  "${run[@]}" bash -c 'cd /epmoe && exec "$@"' _ "$@"
}

((prepare)) || say "in $root: ${command[*]}"
export -f inside
exec unshare --mount --pid --fork --kill-child --propagation private \
  bash -c 'inside "$@"' _ "$root" "$source_dir" "$build" "$setup_stamp" "$prepare" "${command[@]}"
