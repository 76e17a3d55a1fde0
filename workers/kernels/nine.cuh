// Sums of 3 × 3 neighbours with weights of a signed byte, by tensor cores: 16 rows of samples as they lie
// in memory, times a matrix that has a column for each of 16 results. A warp goes down 16 pixels of a tile.

// Of dy 0 … 2 and lane: the rows 4t … 4t + 3 and 16 more of columns 4(g / 2) + g % 2, and of those two on.
struct Nine {
    int parameters[4];  // the rule's
    uint4 weights[3 * 32];
};

constexpr int NINE_WIDTH = 128, NINE_HEIGHT = 64;
constexpr int NINE_WORDS = (NINE_HEIGHT + 2) * (NINE_WIDTH + 12);

__device__ __forceinline__ const Nine& nine_of(const Item& item) { return *global<const Nine>(item.data); }

// Sixteen sums of rows g and g + 8, four of each a lane; `at` is the word before them in the row above.
template <int PITCH>
__device__ __forceinline__ void sum_nine(u32 first, const uint4* weights, const u32* at, u32 (*sums)[4])
{
    const u32 begun[4] = {first, first, first, first};
#pragma unroll
    for (int dy = 0; dy < 3; ++dy, at += PITCH) {
        uint4 left = {at[0], at[8 * PITCH], at[4], at[8 * PITCH + 4]};
        u32 near[2] = {weights[dy].x, weights[dy].y}, far[2] = {weights[dy].z, weights[dy].w};
        multiply_add_signed(left, near, dy ? sums[0] : begun, sums[0]);
        multiply_add_signed(left, far, dy ? sums[1] : begun, sums[1]);
    }
}

// All samples through `rule`, which gets four sums, the word they belong to, and where it is in the image.
template <int C, class Rule>
__device__ __forceinline__ void nine_tile(const Item& item, int block, const Rule& rule, u32* words, u32* room)
{
    constexpr int PITCH = NINE_WIDTH / 4 * C + 12;
    Tile tile = tile_of(item, block, NINE_WIDTH, NINE_HEIGHT);
    int strip = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint4 weights[3];
    for (int dy = 0; dy < 3; ++dy) weights[dy] = nine_of(item).weights[32 * dy + threadIdx.x % 32];
    stage_around<C, NINE_HEIGHT, PITCH>(item, tile, words);
    __syncthreads();
    if (16 * strip >= tile.width) return;
    words += g * PITCH + 4 * C * strip + t + 4, room += 128 * strip;
#pragma unroll 1
    for (int y = 0; y < tile.height; y += 16, words += 16 * PITCH) {
        u32 made[2][C];
#pragma unroll
        for (int unit = 0; unit < C; ++unit) {
            u32 sums[2][4];
            sum_nine<PITCH>(rule.first(), weights, words + 4 * unit - 1, sums);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                u32 four[4] = {sums[0][2 * i], sums[0][2 * i + 1], sums[1][2 * i], sums[1][2 * i + 1]};
                int at = tile.x * C + 16 * (C * strip + unit) + 4 * t;
                made[i][unit] = rule(four, words[(8 * i + 1) * PITCH + 4 * unit], at, tile.y + y + 8 * i + g);
            }
        }
        for (int i = 0; i < 2; ++i) {
            for (int unit = 0; unit < C; ++unit) room[(g * C + unit) * 4 + t] = made[i][unit];
            copy_eight<C>(item, tile, 16 * strip, y + 8 * i, room);
        }
    }
}
