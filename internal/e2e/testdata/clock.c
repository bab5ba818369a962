/* This library is preloaded into a server and shifts its wall clock by CLOCK_OFFSET seconds. The monotonic clock is
 * unaffected. It calls the kernel directly: libfaketime looks up libc's functions and hangs with jemalloc, which
 * redis-server uses and which asks for the time before the lookup is done. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void)
{
	const char *seconds = getenv("CLOCK_OFFSET");
	return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int failed = syscall(SYS_clock_gettime, clock, now);
	if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += offset();
	return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	int failed = syscall(SYS_gettimeofday, now, zone);
	if (!failed && now)
		now->tv_sec += offset();
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
