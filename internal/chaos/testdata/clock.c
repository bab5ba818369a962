/* This library is preloaded into a server and shifts its wall clock. The offset in seconds is read on every call from
 * the mapped file CLOCK_OFFSET_FILE, as a 64-bit number in native byte order (little-endian where it is written). The
 * monotonic clock is unaffected. It calls the kernel directly: libfaketime looks up libc's functions and hangs with
 * jemalloc, which redis-server uses and which asks for the time before the lookup is done. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none;
static volatile int64_t *seconds = &none;

__attribute__((constructor)) static void open_clock(void)
{
	const char *path = getenv("CLOCK_OFFSET_FILE");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0)
		return;
	void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (page != MAP_FAILED)
		seconds = page;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int failed = syscall(SYS_clock_gettime, clock, now);
	if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += *seconds;
	return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	int failed = syscall(SYS_gettimeofday, now, zone);
	if (!failed && now)
		now->tv_sec += *seconds;
	return failed;
}

time_t time(time_t *result)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (result)
		*result = now.tv_sec;
	return now.tv_sec;
}
