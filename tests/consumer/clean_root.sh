#!/usr/bin/env bash
# clean_root.sh PACKAGE ROOT [TORCH]: installs a Debian package of shoal in a system that has nothing else, below ROOT, and
# uses it there: the command, its pages, and programs built by CMake and by pkg-config. TORCH: a folder of libtorch, which
# the system sees as /opt/torch; without it, what needs none. On demand, by root, with debootstrap and a mirror of Debian:
#
#   ./dev package && tests/consumer/clean_root.sh build/package/shoal_*.deb /var/tmp/root .venv/lib/python3*/site-packages/torch
#
# ROOT may be there from the last time; then it is used again.
set -euo pipefail
package=$(realpath "$1") root=$2 torch=${3:+$(realpath "$3")}
source=$(dirname "$(realpath "$0")")
mkdir -p "$root"
root=$(realpath "$root")

mounted=()
leave() {
  local i
  for ((i = ${#mounted[@]} - 1; i >= 0; --i)); do umount -R -l "${mounted[i]}"; done
}
trap leave EXIT
attach() {   # attach WHERE MOUNT_ARGUMENT...
  mkdir -p "$root$1"
  mount "${@:2}" "$root$1"
  mounted+=("$root$1")
}
inside() {   # inside COMMAND: with nothing of this system's environment
  chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    bash -euo pipefail -c "$1"
}
say() { printf '\n== %s\n' "$*"; }

# The system: this one's release and mirror, and no more than apt needs. Man pages are left out of small images; not here.
if [ ! -x "$root/usr/bin/apt-get" ]; then
  say "debootstrap"
  . /etc/os-release
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' "Release: $VERSION_CODENAME" | head -1)
  debootstrap --variant=minbase --include=ca-certificates "$VERSION_CODENAME" "$root" "$mirror"
fi
attach /proc -t proc proc
attach /dev --rbind /dev
mount --make-rslave "$root/dev"
attach /dev/shm -t tmpfs tmpfs
attach /shoal -t tmpfs tmpfs
cp "$package" "$root/shoal/shoal.deb"
cp -r "$source" "$root/shoal/consumer"
[ -z "$torch" ] || attach /opt/torch --bind -o ro "$torch"

say "apt-get install"
inside 'rm -f /etc/dpkg/dpkg.cfg.d/*exclude* && apt-get update -qq'
inside 'if dpkg -s shoal >/dev/null 2>&1; then apt-get purge -y -qq shoal; fi'
inside 'apt-get install -y -qq --no-install-recommends /shoal/shoal.deb man-db g++ cmake ninja-build pkg-config'
inside 'apt-get check && ! dpkg --audit | grep .'

say "the command, its pages, its completion"
inside 'shoal --version'
inside 'MANPAGER=cat man shoal | grep "processes that work together"'
inside 'for page in run top trace stacks beton; do MANPAGER=cat man "shoal-$page" | grep -i "usage" || { echo "no page shoal-$page"; exit 1; }; done'
inside 'source /usr/share/bash-completion/completions/shoal && complete -p shoal'
inside 'test -s /usr/share/doc/shoal/run.md && test -s /usr/share/doc/shoal/copyright'
inside 'shoal run --nproc-per-node 2 -- /bin/sh -c "echo rank \$RANK of \$WORLD_SIZE" | sort | tee /shoal/ranks'
inside 'printf "[rank0]: rank 0 of 2\n[rank1]: rank 1 of 2\n" | cmp - /shoal/ranks'
inside 'for file in /usr/lib/*-linux-gnu*/libshoal_*.so.*; do test "$(objdump -p "$file" | sed -n "s/ *SONAME *//p")" = "$(basename "$file" | cut -d. -f1-4)"; done'

say "a program by pkg-config"
inside 'cd /shoal && g++ -std=c++20 -O1 consumer/processes.cpp -o processes $(pkg-config --cflags --libs shoal) && ./processes'
if [ -n "$torch" ]; then
  inside 'cd /shoal && g++ -std=c++20 -O1 consumer/shared_tensor.cpp -o shared_tensor \
            $(pkg-config --define-variable=torch=/opt/torch --cflags --libs shoal-torch) && ./shared_tensor'
  say "programs by CMake"
  inside 'cd /shoal && cmake -G Ninja -S consumer -B build -DTorch_DIR=/opt/torch/share/cmake/Torch -DCMAKE_BUILD_TYPE=Release &&
          cmake --build build && build/messages && build/shared_tensor'
fi

say "apt-get purge leaves nothing"
inside 'apt-get purge -y -qq shoal && ! find / -xdev -not -path "/shoal*" -not -path "/proc/*" -not -path "/var/cache/*" -path "*shoal*" | grep .'
say "clean root: all passed"
