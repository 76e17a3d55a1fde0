// Which of 64 × 32 squares of a warp have fewer samples that reach a level than are enough.
//
// The samples that reach it become bits, B. The number in every square is D · B · A, where D and A
// are band matrices: a row of D has ones for the rows of a square, a column of A for its columns.
// Both are products of bytes on the tensor cores (mma.cuh), 32 samples a step:
//
//     16 × 32 (D) times 32 × 8 (bits of B)   = sums down columns, 16 rows of results
//     16 × 32 (these sums) times 32 × 8 (A)  = counts, which begin at -enough: bit 31 says "fewer"
//
//     x: results of a warp in groups of 16 columns, `SEARCH_GROUPS` = 4
//     |  0  |  1  |  2  |  3  |              group q of results sees the groups of samples
//     |  s0 |  s1 |  s2 |  s3 |  s4 | …      q … q + GROUPS - 1
//
// Bits are 128 in a byte and D has twos, so that the sums down columns, at most 101, lie in the
// second byte. Lane 4 · g + t owns rows g and g + 8, columns 2 · t and 2 · t + 1 of a product.
#pragma once
#include "kernels/headers/common.cuh"
#include "kernels/headers/mma.cuh"

constexpr int SEARCH_WIDTH = 128, SEARCH_GROUPS = 4;  // pixels a tile; groups of 16 columns a warp

// A window of squares: 16 squares side by side see at most 16 · GROUPS columns. Tiles have HEIGHT
// rows.
template <int GROUPS_, int HEIGHT_> struct RankWindow {
    static constexpr int GROUPS = GROUPS_, HEIGHT = HEIGHT_, STEPS = (GROUPS + 1) / 2;
    static constexpr int COLUMNS = SEARCH_WIDTH + 16 * (GROUPS - 1),
                         FOURS = HEIGHT / 4 + 4 * (GROUPS - 1);
    // With 8 words more the lanes' words lie in different banks.
    static constexpr int PITCH = COLUMNS + 8;
    static constexpr int WORDS = PITCH * FOURS;
};

// The band matrices of a warp: for each step of 32 samples, which of them belong to a square. Down
// columns they count twice, so that bits of 128 add up to multiples of 256.
template <class D> struct Bands {
    uint4 down[D::STEPS];
    u32 across[D::STEPS][2][2];
    u32 start[4];  // counts begin at -enough

    // Return a word of the band: which of the samples first, first + 1, first + skip and first +
    // skip + 1 belong to a square that begins at 0.
    static __device__ __forceinline__ u32 band(int first, int skip, u32 size, u32 weight)
    {
        u32 made = 0;
        for (int i = 0; i < 4; ++i)
            if ((u32)(first + i / 2 * skip + i % 2) < size) made |= weight << 8 * i;
        return made;
    }

    __device__ __forceinline__ Bands(int size, int enough)
    {
        // Four registers side by side, where every product finds its start; as one value it was
        // copied for each product.
        for (int k = 0; k < 4; ++k) start[k] = __shfl_xor_sync(~0u, 0u - enough, k + 1);
        int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int j = 0; j < D::STEPS; ++j) {
            int y = 32 * j + 4 * t - g, x = 32 * j + 2 * t - g;
            down[j] = {band(y, 2, size, 2), band(y - 8, 2, size, 2), band(y + 16, 2, size, 2),
                band(y + 8, 2, size, 2)};
            for (int n = 0; n < 2; ++n)
                for (int half = 0; half < 2; ++half)
                    across[j][n][half] = band(x - 8 * n + 16 * half, 8, size, 1);
        }
    }
};

// Return, for four samples of at most 128, the highest bits of those that reach a level from 1 to
// 128.
__device__ __forceinline__ u32 reached(u32 samples, u32 level)
{
    return (samples + (128 - level) * 0x01010101) & 0x80808080;
}

// Return the bits that are set in any lane of a warp.
__device__ __forceinline__ u32 of_any_lane(u32 bits)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_or_sync(~0u, bits);
#else
    for (int step = 16; step > 0; step /= 2) bits |= __shfl_xor_sync(~0u, bits, step);
    return bits;
#endif
}

// Which of the groups of 16 columns have any of the warp's pending results, 64 a lane.
struct PendingGroups {
    u32 groups[2];

    __device__ __forceinline__ explicit PendingGroups(const u32* results)
        : groups{of_any_lane(results[0]), of_any_lane(results[1])}
    {
    }

    __device__ __forceinline__ bool any() const { return groups[0] | groups[1]; }

    __device__ __forceinline__ bool has(int group) const
    {
        return groups[group / 2] & 0xFFFF0000 >> group % 2 * 16;
    }

    // Return whether the results of any pending group see the group `columns` of 16 columns, where
    // a result sees `most` groups.
    __device__ __forceinline__ bool see(int columns, int most) const
    {
        u32 seen[2] = {};
#pragma unroll
        for (int k = 0; k < SEARCH_GROUPS; ++k)
            if (k <= columns && columns < k + most) seen[k / 2] |= 0xFFFF0000 >> k % 2 * 16;
        return (groups[0] & seen[0]) | (groups[1] & seen[1]);
    }
};

// Count down 16 columns for two times 16 rows of results, from words of four samples below each
// other. The lane gets row g and row g + 8, columns 2t, 2t + 1, 2t + 8 and 2t + 9.
template <class D>
__device__ __forceinline__ void count_down(
    const u32* at, u32 level, const Bands<D>& bands, uint2* made)
{
    u32 sums[2][2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        u32 ones[D::GROUPS + 1];
#pragma unroll
        for (int k = 0; k < D::GROUPS + 1; ++k)
            ones[k] = reached(at[4 * k * D::PITCH + 8 * n], level);
#pragma unroll
        for (int m = 0; m < 2; ++m)
            for (int j = 0; j < D::STEPS; ++j) {
                const u32* right = ones + m + 2 * j;
                if (2 * j + 1 == D::GROUPS)
                    multiply_add_half(bands.down[j].x, bands.down[j].y, *right, sums[m][n]);
                else multiply_add(bands.down[j], right, sums[m][n]);
            }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
        u32 *a = sums[m][0], *b = sums[m][1];
        made[m].x = __byte_perm(a[0], a[1], 0x3351) + 65536 * __byte_perm(b[0], b[1], 0x3351);
        made[m].y = __byte_perm(a[2], a[3], 0x3351) + 65536 * __byte_perm(b[2], b[3], 0x3351);
    }
}

// Return for 16 results a lane, one bit each, the first in the highest place, whether fewer samples
// of the square than enough reach the level, from the counts of 16 · GROUPS columns.
template <class D>
__device__ __forceinline__ u32 count_across(const uint2 (*columns)[2], const Bands<D>& bands)
{
    u32 made = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        int m = i / 2, n = i % 2;
        u32 sums[4];
#pragma unroll
        for (int j = 0; j < D::STEPS; ++j) {
            const uint2 &a = columns[2 * j][m], &b = columns[2 * j + 1][m];
            if (2 * j + 1 == D::GROUPS) multiply_add_half(a.x, a.y, bands.across[j][n][0], sums);
            else if (j == 0)
                multiply_from({a.x, a.y, b.x, b.y}, bands.across[j][n], bands.start, sums);
            else multiply_add({a.x, a.y, b.x, b.y}, bands.across[j][n], sums);
        }
        for (int k = 0; k < 4; ++k) made = __funnelshift_l(sums[k], made, 1);
    }
    return made;
}

// Compute these bits for 64 results a lane, in two words, for the pending groups.
template <class D>
__device__ __forceinline__ void results_below(
    const u32* at, u32 level, const Bands<D>& bands, const PendingGroups& wanted, u32* made)
{
    uint2 columns[SEARCH_GROUPS + D::GROUPS][2] = {};
    made[0] = made[1] = 0;
#pragma unroll
    for (int q = 0; q < SEARCH_GROUPS + D::GROUPS - 1; ++q) {
        if (wanted.see(q, D::GROUPS)) count_down(at + 16 * q, level, bands, columns[q]);
        int first = q - D::GROUPS + 1;
        if (first >= 0 && wanted.has(first))
            made[first / 2] |= count_across<D>(columns + first, bands) << (16 - first % 2 * 16);
    }
}
