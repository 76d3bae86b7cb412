# Waits for the end of the test process, which closes the pipe on standard input, and then removes what is left of a
# cluster: the members of its control group, its loop devices and mounts, what it put elsewhere, the group, the folder.
folder=$1
name=$(basename "$folder")
read -r _

if [ "$2" = groups ]; then
	tries=0
	while [ $tries -lt 100 ]; do
		members=$(find /sys/fs/cgroup -path "*/$name*" -name cgroup.procs -exec cat {} + | sort -u)
		[ -n "$members" ] || break
		kill -KILL $members
		sleep 0.05
		tries=$((tries + 1))
	done
	# Before the mounts go, which hide where their files are; one in use is let go with its last user.
	losetup --list --noheadings --output NAME,BACK-FILE | awk -v prefix="$folder/" 'index($2, prefix) == 1 { print $1 }' |
		while read -r device; do losetup --detach "$device"; done
	awk -v prefix="$folder/" 'index($5, prefix) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
		while read -r mount; do umount --lazy "$mount"; done
	find /sys/fs/cgroup -depth -type d -path "*/$name*" -exec rmdir {} +
	# Places that kubelet, the shims and the network plugins do not let one choose.
	find /var/log/containers -lname "$folder/*" -delete
	sed -s -n 's#^unix://##p' "$folder"/run/io.containerd.runtime.v2.task/*/*/address | xargs -r -d '\n' rm -f
	grep -rl "$folder/" /var/lib/cni/results | xargs -r -d '\n' rm -f
fi
rm -rf --one-file-system "$folder" || { sleep 0.2; rm -rf --one-file-system "$folder"; }
