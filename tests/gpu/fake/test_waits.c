/* Every wait that keeps lanes in order is missed when it is left out: a training
 * without it comes out otherwise than the host's.
 *
 * What a training does without one of its waits is undefined, so each is a
 * process of its own: this program, called with the wait's number.  An error or a
 * crash is a notice too.  Only one that ends with the right bits is none. */
#include "tests/test.h"

#include <spawn.h>
#include <sys/wait.h>

#include "offload/run_lanes.h"
#include "tests/gpu/fake/fake.h"
#include "tests/gpu/fake/toy_device.h"
#include "tests/sched/places.h"

#define SEEDS 10
#define SECONDS_MAX 60 /* of a process; without a wait it may never end */
#define SAME 0         /* what it exits with */
#define OTHERWISE 10
#define NONE_LEFT_OUT 11

#define HOST (-1)
#define ALL_WAITS (-2)

/* A wait of one lane for another; HOST: threads, for what a device lane's
 * finisher, or a host lane, has done. */
static const struct wait {
  enum toy_scene scene;
  int waiter, waited;
} waits[] = {{TOY_BUSY, ALL_WAITS, 0},
             {TOY_DRIVES, ALL_WAITS, 0},
             {TOY_NEAR, ALL_WAITS, 0},
             {TOY_FEW_EXPERTS, ALL_WAITS, 0},
             {TOY_BUSY, PEN_LANE_COMPUTE, PEN_LANE_UPLOAD},
             {TOY_BUSY, PEN_LANE_COMPUTE, PEN_LANE_DOWNLOAD},
             {TOY_BUSY, PEN_LANE_UPLOAD, PEN_LANE_COMPUTE},
             {TOY_BUSY, PEN_LANE_DOWNLOAD, PEN_LANE_COMPUTE},
             {TOY_BUSY, HOST, PEN_LANE_COMPUTE},
             {TOY_BUSY, HOST, PEN_LANE_UPLOAD},
             {TOY_BUSY, HOST, PEN_LANE_DOWNLOAD},
             {TOY_BUSY, HOST, PEN_LANE_UPDATE},
             {TOY_DRIVES, HOST, PEN_LANE_READ},
             {TOY_DRIVES, HOST, PEN_LANE_WRITE},
             {TOY_NEAR, PEN_LANE_COMPUTE, PEN_LANE_UPLOAD},
             {TOY_NEAR, PEN_LANE_DOWNLOAD, PEN_LANE_COMPUTE},
             {TOY_NEAR, HOST, PEN_LANE_DOWNLOAD},
             {TOY_FEW_EXPERTS, PEN_LANE_COMPUTE, PEN_LANE_UPLOAD},
             {TOY_FEW_EXPERTS, PEN_LANE_UPLOAD, PEN_LANE_COMPUTE},
             {TOY_FEW_EXPERTS, HOST, PEN_LANE_DOWNLOAD}};
#define N_WAITS (sizeof waits / sizeof *waits)

static const char *const scene_names[TOY_SCENES] = {
    "", " (drives)", " (state on the device)", " (experts)"};

static const char *program;

/* ---- the training without it ---- */

/* Drives are late with what they move, where that is what is waited for. */
static bool drives_are_late;

static void be_late(void)
{
  if (drives_are_late)
    usleep(2000);
}

ssize_t __real_pread(int fd, void *to, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t at);
ssize_t __real_pwrite(int fd, const void *from, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t at);

ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t at)
{
  be_late();
  return __real_pread(fd, to, bytes, at);
}

ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t at)
{
  be_late();
  return __real_pwrite(fd, from, bytes, at);
}

/* A run makes the tickets of its lanes in order, and one run is there at a
 * time. */
static const struct pen_ticket *tickets[PEN_LANES];
static size_t n_tickets;
static int dropped_lane = -1; /* waits of threads for this lane are left out */
static uint64_t n_dropped;

int __real_pen_ticket_init(struct pen_ticket *lane);
int __wrap_pen_ticket_init(struct pen_ticket *lane);
bool __real_pen_ticket_wait(struct pen_ticket *lane, uint32_t ticket);
bool __wrap_pen_ticket_wait(struct pen_ticket *lane, uint32_t ticket);

int __wrap_pen_ticket_init(struct pen_ticket *lane)
{
  tickets[n_tickets++ % PEN_LANES] = lane;
  return __real_pen_ticket_init(lane);
}

bool __wrap_pen_ticket_wait(struct pen_ticket *lane, uint32_t ticket)
{
  if (dropped_lane < 0 || lane != tickets[dropped_lane])
    return __real_pen_ticket_wait(lane, ticket);
  __atomic_add_fetch(&n_dropped, 1, __ATOMIC_RELAXED);
  return true;
}

/* The fake numbers streams as PEN_DEVICE_ and so the first lanes do. */
static void leave_out(const struct wait *w)
{
  struct fake_settings *s = fake_settings();
  if (w->waiter == ALL_WAITS)
    return;
  if (w->waited >= PEN_LANE_UPDATE) { /* no queue of the device */
    dropped_lane = w->waited;
  } else if (w->waiter == HOST) {
    s->drop_sync = w->waited;
  } else {
    s->drop_waiter = w->waiter;
    s->drop_waited = w->waited;
  }
}

/* Ends the process: OTHERWISE as soon as a seed's bits differ. */
static void train_without(const struct wait *w)
{
  struct pen_placement plain = places_plain(), p = toy_device_place(w->scene);
  enum toy_kind kind =
      w->scene == TOY_FEW_EXPERTS ? TOY_EXPERTS : TOY_TIED;
  struct runs_outcome *want = runs_outcome(&plain, kind, 1, 1, -1, NULL);
  char text[128];
  toy_device_open(NULL);
  leave_out(w);
  drives_are_late = w->scene == TOY_DRIVES;
  toy_device_on.may_fail = w->waiter != ALL_WAITS;
  int seeds = w->waiter == ALL_WAITS ? 2 : SEEDS;
  for (int seed = 1; seed <= seeds; seed++) {
    fake_settings()->jitter = (uint64_t)seed;
    struct runs_outcome *got =
        runs_outcome(&p, kind, 2, 1, -1, &toy_device_on);
    if (!runs_same(got, want, text, sizeof text)) {
      printf("#   seed %d: %s\n", seed, text);
      fflush(stdout);
      _exit(OTHERWISE);
    }
    runs_outcome_free(got);
  }
  bool none = fake_counts()->dropped + n_dropped == 0;
  fflush(stdout);
  _exit(none && w->waiter != ALL_WAITS ? NONE_LEFT_OUT : SAME);
}

/* ---- the tests ---- */

/* What became of the process of a wait, as of wait(). */
static int outcome_of(size_t number)
{
  char text[8];
  char *args[] = {(char *)program, text, NULL};
  pid_t pid;
  int status;
  snprintf(text, sizeof text, "%zu", number);
  fflush(NULL);
  assert_int_equal(posix_spawn(&pid, program, NULL, NULL, args, environ), 0);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}

static void test_with_all_waits_nothing_differs(void **state)
{
  (void)state;
  for (size_t i = 0; i < N_WAITS; i++)
    if (waits[i].waiter == ALL_WAITS && outcome_of(i) != 0)
      fail_msg("with all waits it differs%s", scene_names[waits[i].scene]);
}

static const char *name_of(int lane)
{
  return lane == HOST ? "the host" : pen_lane_name(lane);
}

static void test_every_wait_is_needed(void **state)
{
  size_t missed = 0;
  (void)state;
  for (size_t i = 0; i < N_WAITS; i++) {
    const struct wait *w = &waits[i];
    if (w->waiter == ALL_WAITS)
      continue;
    int status = outcome_of(i), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    const char *how = code == SAME            ? "NOT noticed"
                      : code == NONE_LEFT_OUT ? "there is NO such wait"
                      : code == OTHERWISE     ? "noticed"
                                              : "noticed by its end";
    printf("# %s not waiting for %s%s: %s\n", name_of(w->waiter),
           name_of(w->waited), scene_names[w->scene], how);
    missed += code == SAME || code == NONE_LEFT_OUT;
  }
  assert_int_equal(missed, 0);
}

int main(int n_args, char **args)
{
  program = args[0];
  if (n_args > 1) {
    alarm(SECONDS_MAX);
    train_without(&waits[strtoul(args[1], NULL, 10) % N_WAITS]);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_with_all_waits_nothing_differs),
      cmocka_unit_test(test_every_wait_is_needed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
