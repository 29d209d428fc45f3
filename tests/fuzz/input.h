/* SPDX-License-Identifier: BSD-3-Clause */
/* What fuzz targets share: an input that is read byte by byte, and invariants that must hold. */
#ifndef VW_TESTS_FUZZ_INPUT_H
#define VW_TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As assert, also where NDEBUG is defined. */
#define INVARIANT(condition)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct input {
    const uint8_t *data;
    size_t left;
};

/* Up to 8 bytes as a little-endian number; zeros behind the end. */
static inline uint64_t input_take(struct input *input, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes && input->left > 0; i++, input->data++, input->left--)
        value |= (uint64_t)*input->data << (8 * i);
    return value;
}

static inline uint8_t input_byte(struct input *input)
{
    return (uint8_t)input_take(input, 1);
}

/* Copies up to `bytes` bytes; returns how many there were. */
static inline size_t input_copy(struct input *input, void *to, size_t bytes)
{
    size_t count = bytes < input->left ? bytes : input->left;

    memcpy(to, input->data, count);
    input->data += count;
    input->left -= count;
    return count;
}

#endif
