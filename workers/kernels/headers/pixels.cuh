// Loads of four pixels of a row at once, interleaved or as planes.
#pragma once
#include "kernels/headers/common.cuh"

// Interleave: turn a word of four samples for each channel into C words of pixels; `deinterleave`
// undoes it.
template <int C> __device__ __forceinline__ void interleave(const u32* plane, u32* out)
{
    if constexpr (C == 3) {
        u32 low = __byte_perm(plane[0], plane[1], 0x5140),
            high = __byte_perm(plane[0], plane[1], 0x7362);
        out[0] = __byte_perm(low, plane[2], 0x2410);
        out[1] = __byte_perm(__byte_perm(low, plane[2], 0x0053), high, 0x5410);
        out[2] = __byte_perm(high, plane[2], 0x7326);
    } else {
        deinterleave<C>(plane, out);
    }
}

// Separate the words of four pixels into a word for each; its fourth byte may belong to a
// neighbour.
template <int C> __device__ __forceinline__ void pixels_of_words(const u32* words, u32* pixel)
{
    if constexpr (C == 1) {
        for (int k = 0; k < 4; ++k) pixel[k] = byte_of(words[0], k);
    } else if constexpr (C == 3) {
        pixel[0] = words[0], pixel[1] = __funnelshift_r(words[0], words[1], 24);
        pixel[2] = __funnelshift_r(words[1], words[2], 16), pixel[3] = words[2] >> 8;
    } else {
        for (int k = 0; k < 4; ++k) pixel[k] = words[k];
    }
}

// Load a channel of the pixels x … x+3 of a row, of which some lie beyond an end. The function is
// separate for the reason given at `replicated4`.
static __device__ __noinline__ u32 replicated_plane4(const u8* row, int width, int channels, int x)
{
    u32 word = 0;
    for (int k = 0; k < 4; ++k) word |= (u32)row[clamped(x + k, width) * channels] << (8 * k);
    return word;
}

// Load pixels x … x+3 of a row as C words; none of them lies beyond the row's ends.
template <int C> __device__ __forceinline__ void inner_pixels4(const u8* row, int x, u32* words)
{
    const u8* at = row + x * C;
    u32 over = (u64)at & 3;
    const u32* from = (const u32*)(at - over);
    for (int c = 0; c < C; ++c) words[c] = from[c];
    if (!over) return;
    u32 last = from[C];
    for (int c = 0; c < C; ++c)
        words[c] = __funnelshift_r(words[c], c + 1 < C ? words[c + 1] : last, 8 * over);
}

// Load them from x >= 0 on; pixels beyond the row's end replicate.
template <int C> __device__ __forceinline__ void words4(const u8* row, int width, int x, u32* words)
{
    if (x + 4 <= width) inner_pixels4<C>(row, x, words);
    else
        for (int c = 0; c < C; ++c) words[c] = replicated4(row, width * C, C, x * C + 4 * c);
}

// Load pixels x … x+3 of a row as a word for each channel; pixels beyond the row's ends replicate.
template <int C>
__device__ __forceinline__ void pixels4(const u8* row, int width, int x, u32* plane)
{
    if (x >= 0 && x + 4 <= width) {
        u32 words[C];
        inner_pixels4<C>(row, x, words);
        deinterleave<C>(words, plane);
        return;
    }
    for (int c = 0; c < C; ++c) plane[c] = replicated_plane4(row + c, width, C, x);
}
