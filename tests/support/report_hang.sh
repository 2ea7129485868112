#!/bin/sh
# report_hang.sh PID: says what process PID and all below it are doing, then kills those below. Called by the watchdog.
exec >&2
root=$1
self=$$

below() {
  for child in $(cat "/proc/$1"/task/*/children 2>/dev/null); do
    [ "$child" = "$self" ] && continue
    echo "$child"
    below "$child"
  done
}

pids=$(below "$root")
for pid in $root $pids; do
  echo "--- process $pid $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
  grep -E '^(Name|State|PPid|Threads|SigBlk):' "/proc/$pid/status" 2>/dev/null | tr '\n\t' '; '
  echo
  echo "wchan: $(cat "/proc/$pid/wchan" 2>/dev/null) syscall: $(cat "/proc/$pid/syscall" 2>/dev/null)"
  cat "/proc/$pid/stack" 2>/dev/null
  if command -v gdb >/dev/null && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; then
    timeout 20 gdb -p "$pid" -batch -nx -iex 'set debuginfod enabled off' -ex 'thread apply all backtrace 20' 2>/dev/null |
      grep -E '^(Thread|#)'
  fi
done
[ -z "$pids" ] || kill -KILL $pids 2>/dev/null
exit 0
