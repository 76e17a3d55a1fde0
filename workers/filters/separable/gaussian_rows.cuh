// The Gaussian of workers/filters/separable/__init__.py in integers, first pass: rows with weights
// in Q22 to 8.8 fixed point in scratch; gaussian_columns.cuh goes on with weights in Q16. With
// alpha, of premultiplied colours in 32 bits. The weights are symmetric, so the samples at equal
// distance are added before they are multiplied.
//
//   halo           256 pixels            halo    A tile has 256 × 16 pixels. `planes` holds as many
//  +----+----+----+----+-- … --+----+----+       of its rows as fit in 24 KiB: [row][plane][x].
//  |    | 8  | 8  |             | 8  |   |  row  A thread makes R neighbouring results: 8 of bytes,
//  +----+----+----+----+-- … --+----+----+       4 of premultiplied samples. Samples slide through
//                                                registers, eight weights at a time.
#pragma once
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"

struct Gaussian {
    int across, down;  // taps on either side, rounded up to fours with weights of 0
    u32 row_centre, column_centre;
    int premultiplied;
    u32 amount, threshold;  // of the unsharp mask: Q16, levels
    int reserved;
    u32 weights[1];  // `across` of them, then `down`, outwards
};

constexpr int ROWS_WIDTH = 256, ROWS_HEIGHT = 16, ROWS_SHARED = 24576;

__device__ __forceinline__ const Gaussian& gaussian_of(const Item& item)
{
    return *global<const Gaussian>(item.data);
}

// Return the distance between rows of planes in scratch, in values; the layout is [y][channel][x].
// Rows of 16-bit values are padded to whole words, for which scratch has room.
template <class Intermediate> __device__ __forceinline__ int pitch_of(int width)
{
    return sizeof(Intermediate) == 2 && width > 3 ? (width + 3) & ~3 : width;
}

// Add T taps from `first` on for R outputs: sums[o] += weight · (sample o - tap + sample o + tap).
// `up` has R + T - 1 samples, of which the last R - 1 are loaded already; `down` has the first R -
// 1 of its samples.
template <int R, int T, class Sum, class Load>
__device__ __forceinline__ void taps(
    u32* up, u32* down, const u32* weights, int first, Sum* sums, const Load& load)
{
    load.template many<T>(-first - T, up);
    load.template many<T>(first + R, down + R - 1);
#pragma unroll
    for (int t = 0; t < T; ++t) {
        u32 weight = weights[first + t];
#pragma unroll
        for (int o = 0; o < R; ++o) sums[o] += (Sum)weight * (up[o + T - 1 - t] + down[o + t]);
    }
}

// Compute the weighted sums around R neighbouring samples. `load.many<N>(place, samples)` loads N
// samples from `place` on, counted from the first of the R.
template <int R, class Sum, class Load>
__device__ __forceinline__ void weighted(
    u32 centre, const u32* weights, int n, Sum* sums, const Load& load)
{
    u32 up[R + 7], down[R + 7], near[R];
    load.template many<R>(0, near);
#pragma unroll
    for (int o = 0; o < R; ++o) {
        sums[o] = (Sum)centre * near[o];
        if (o < R - 1) up[8 + o] = near[o];
        if (o > 0) down[o - 1] = near[o];
    }
    int first = 0;
#pragma unroll 1
    for (; first + 8 <= n; first += 8) {
        taps<R, 8>(up, down, weights, first, sums, load);
#pragma unroll
        for (int j = R - 2; j >= 0; --j) up[8 + j] = up[j];
#pragma unroll
        for (int j = 0; j < R - 1; ++j) down[j] = down[8 + j];
    }
    if (first < n) taps<R, 4>(up + 4, down, weights, first, sums, load);
}

// Stage rows of a tile as planes in shared memory, [row][plane][x]. With alpha, colours are
// multiplied by it, and alpha is weighed as the colour 255.
template <int C, int PLANES, class Sample>
__device__ __forceinline__ void stage_rows(
    const Item& item, const Tile& tile, int top, int rows, int halo, Sample* planes)
{
    int pitch = ROWS_WIDTH + 2 * halo,
        groups = (min((tile.width + 7) & ~7, ROWS_WIDTH) + 2 * halo) / 4;
    int row = 0;
    for (int group = threadIdx.x;; group += THREADS) {
        // A loop instead of a division for each of them.
        for (; group >= groups; group -= groups) ++row;
        if (row >= rows) return;
        int x = 4 * group;
        u32 plane[C];
        pixels4<C>(source_row(item, top + row), item.width, tile.x + x - halo, plane);
        Sample* to = planes + row * PLANES * pitch + x;
        for (int c = 0; c < PLANES; ++c) {
            if constexpr (sizeof(Sample) == 1) {
                *(u32*)(to + c * pitch) = plane[c];
            } else {
                for (int k = 0; k < 4; ++k)
                    to[c * pitch + k] = (c < 3 ? byte_of(plane[c], k) : 255) * byte_of(plane[3], k);
            }
        }
    }
}

__device__ __forceinline__ void store_intermediate4(u16* to, const u32* middle)
{
    __stcg((uint2*)to, make_uint2(middle[0] | middle[1] << 16, middle[2] | middle[3] << 16));
}

__device__ __forceinline__ void store_intermediate4(u32* to, const u32* middle)
{
    __stcg((uint4*)to, make_uint4(middle[0], middle[1], middle[2], middle[3]));
}

// Store R sums of a row of the planes to scratch, from x on in the tile, rounded and shifted right
// by SHIFT bits.
template <int R, class Intermediate, int SHIFT, class Sum>
__device__ __forceinline__ void store_intermediates(
    const Item& item, const Tile& tile, int row, int x, const Sum* sums)
{
    int pitch = pitch_of<Intermediate>(item.width);
    Intermediate* to = global<Intermediate>(item.scratch) + (i64)row * pitch + tile.x + x;
#pragma unroll
    for (int o = 0; o < R; o += 4) {
        u32 middle[4];
        for (int k = 0; k < 4; ++k) middle[k] = (u32)((sums[o + k] + (1 << SHIFT >> 1)) >> SHIFT);
        if (pitch % 4 == 0 && x + o < tile.width) store_intermediate4(to + o, middle);
        else
            for (int k = 0; k < min(4, tile.width - x - o); ++k)
                to[o + k] = (Intermediate)middle[k];
    }
}

// Neighbours in a row of shared memory. Bytes are read four at a time; all places are multiples of
// four.
template <class Sample> struct Along {
    const Sample* at;

    template <int N> __device__ __forceinline__ void many(int place, u32* samples) const
    {
#pragma unroll
        for (int j = 0; j < N; ++j) {
            if constexpr (sizeof(Sample) == 1)
                samples[j] = byte_of(((const u32*)(at + place))[j / 4], j % 4);
            else samples[j] = at[place + j];
        }
    }
};

template <int C, int PLANES, class Sample, class Sum, class Intermediate, int SHIFT = 14>
__device__ __forceinline__ void blur_rows(
    const Item& item, const Tile& tile, Sample* planes, const u32* weights)
{
    constexpr int R = sizeof(Sample) == 1 ? 8 : 4, UNITS = ROWS_WIDTH / R;
    int halo = gaussian_of(item).across, pitch = ROWS_WIDTH + 2 * halo;
    int most = min(ROWS_HEIGHT, ROWS_SHARED / (int)(pitch * PLANES * sizeof(Sample)));
    for (int first = 0; first < tile.height; first += most) {
        int rows = min(most, tile.height - first);
        __syncthreads();
        stage_rows<C, PLANES>(item, tile, tile.y + first, rows, halo, planes);
        __syncthreads();
        for (int i = threadIdx.x; i < rows * PLANES * UNITS; i += THREADS) {
            int x = i % UNITS * R, line = i / UNITS;
            if (x >= tile.width) continue;
            Sum sums[R];
            weighted<R>(gaussian_of(item).row_centre, weights, halo, sums,
                Along<Sample>{planes + line * pitch + halo + x});
            store_intermediates<R, Intermediate, SHIFT>(
                item, tile, (tile.y + first) * PLANES + line, x, sums);
        }
    }
}
