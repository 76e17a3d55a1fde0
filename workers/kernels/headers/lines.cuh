// An image as one line of samples: a block takes LINE of them, a thread 48 bytes, which are whole
// pixels of 1, 3 and 4 channels.
#pragma once
#include "kernels/headers/common.cuh"

constexpr u32 LINE = 12288;

__device__ __forceinline__ u32 samples_of(const Item& item)
{
    return (u32)item.width * item.height * item.channels;
}

__device__ __forceinline__ u32 through_table4(u32 word, const u8* table, u32 kept)
{
    u32 low = table[word & 255] | (u32)table[word >> 8 & 255] << 8;
    u32 high = table[word >> 16 & 255] | (u32)table[word >> 24] << 8;
    return ((low | high << 16) & ~kept) | (word & kept);
}

// Map all samples but alpha by a table in shared memory.
__device__ __forceinline__ void map_samples(const Item& item, int block, const u8* table)
{
    const u8* src = global<const u8>(item.src);
    u8* dst = global<u8>(item.dst);
    u32 total = samples_of(item), first = block * LINE + 16 * threadIdx.x;
    u32 kept = item.channels == 4 ? 0xFF000000u : 0;
    uint4 v[3];
    for (int i = 0; i < 3; ++i)
        if (first + 4096 * i + 16 <= total) v[i] = *(const uint4*)(src + first + 4096 * i);
    for (int i = 0; i < 3; ++i) {
        u32 at = first + 4096 * i;
        if (at + 16 <= total) {
            u32 made[4] = {through_table4(v[i].x, table, kept), through_table4(v[i].y, table, kept),
                through_table4(v[i].z, table, kept), through_table4(v[i].w, table, kept)};
            store16(dst + at, made);
        } else {
            for (u32 s = at; s < total; ++s) dst[s] = kept && s % 4 == 3 ? src[s] : table[src[s]];
        }
    }
}

// Map four pixels, C words: `map` turns a colour into a colour, alpha stays.
template <int C, class Map>
__device__ __forceinline__ void map4(const u32* in, u32* out, const Map& map)
{
    u32 bytes[4 * C];
#pragma unroll
    for (int p = 0; p < 4 * C; p += C) {
        u32 colour[3], made[3];
        for (int c = 0; c < min(C, 3); ++c) colour[c] = byte_of(in[(p + c) / 4], (p + c) % 4);
        map(colour, made);
        for (int c = 0; c < min(C, 3); ++c) bytes[p + c] = made[c];
        if constexpr (C == 4) bytes[p + 3] = in[p / 4] >> 24;
    }
    for (int i = 0; i < C; ++i)
        out[i] = packed(bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]);
}

template <int C, class Map>
__device__ __forceinline__ void map_pixels(const Item& item, int block, const Map& map)
{
    u32 total = samples_of(item), at = block * LINE + 48 * threadIdx.x;
    const u8* src = global<const u8>(item.src) + at;
    u8* dst = global<u8>(item.dst) + at;
    if (at + 48 <= total) {
        u32 in[12], out[12];
        for (int i = 0; i < 3; ++i) load16(src + 16 * i, in + 4 * i);
        for (int i = 0; i < 12; i += C) map4<C>(in + i, out + i, map);
        for (int i = 0; i < 3; ++i) store16(dst + 16 * i, out + 4 * i);
        return;
    }
    for (; at < total; at += C, src += C, dst += C) {
        u32 colour[3], made[3];
        for (int c = 0; c < min(C, 3); ++c) colour[c] = src[c];
        map(colour, made);
        for (int c = 0; c < C; ++c) dst[c] = c < 3 ? (u8)made[c] : src[c];
    }
}

__device__ __forceinline__ void copy_line(const Item& item, int block)
{
    const u8* src = global<const u8>(item.src);
    u8* dst = global<u8>(item.dst);
    u32 total = samples_of(item), first = block * LINE + 16 * threadIdx.x;
    for (u32 at = first; at < min(total, first + LINE); at += 4096) {
        if (at + 16 <= total) *(uint4*)(dst + at) = *(const uint4*)(src + at);
        else
            for (u32 s = at; s < total; ++s) dst[s] = src[s];
    }
}
