/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writing to an eventfd that somebody else may have made blocking.
 *
 * Theory of operation
 * -------------------
 * Whether a write to an eventfd blocks is a flag of the open file, which we share with whoever gave
 * us the descriptor. A front-end that takes O_NONBLOCK away and fills the counter would stop the
 * thread that calls its guest, and everything that this thread does for others; and no flag that we
 * set before a write is sure to be there during it. A signal ends such a write. So each thread has
 * a timer that sends it one, and that runs whenever it may be writing:
 *
 *   - A write finds the timer running, or starts it. Nothing stops it afterwards, since that would
 *     cost two system calls a write.
 *   - At the signal the timer goes on if a write is under way, which has then blocked, or is just
 *     about to be made; otherwise it stops itself.
 *
 * A thread that writes all the time is so interrupted 50 times a second, one that does not write
 * never. It must take EINTR anywhere. A thread that does other people's work, too, asks for the
 * timer to be stopped after each write.
 *
 * The state belongs to the thread, as the signal does: these functions can be called by any thread,
 * and by several at once.
 */
#ifndef VW_DEVICE_INTERRUPT_H
#define VW_DEVICE_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Prepares the calling thread; `at_once`: its timer stops after each write. Takes over the signal
 * SIGRTMIN of the process. Returns 0 or -errno. Calls may be nested, each with an end in the same
 * thread.
 */
int vw_interrupt_begin(bool at_once);
void vw_interrupt_end(void);

/*
 * Adds 1 to an eventfd. Returns 0, -EAGAIN if the counter is full, or -EINTR if the descriptor
 * blocks: then nothing good will come of another try.
 */
int vw_interrupt_write(int fd);

/* System calls that the calling thread's signals made; all others are in vw_system_calls. */
uint64_t vw_interrupt_system_calls(void);

#endif
