// Samples as they lie in memory, two a word, and the neighbours of each: what is added or multiplied
// is so twice at once. A lane has four pixels of eight rows of a tile, and a warp whole rows of it.

constexpr int PAIRS_WIDTH = 128, PAIRS_HEIGHT = 64, PAIRS_ROWS = 8;
constexpr int PAIRS_WORDS = (PAIRS_HEIGHT + 2) * (PAIRS_WIDTH + 8);  // of a tile and what is around it

// C words of a row and one more on either side: even samples of each word, and odd ones.
template <int C> struct Pairs {
    static constexpr int PITCH = PAIRS_WIDTH / 4 * C + 8;
    u32 even[C + 2], odd[C + 2];

    // `words` is the first of the C.
    __device__ __forceinline__ void load(const u32* words)
    {
#pragma unroll
        for (int k = 0; k < C + 2; ++k) {
            u32 word = words[k - 1];
            even[k] = word & HALVES, odd[k] = __byte_perm(word, 0, 0x4341);
        }
    }

    // Of the samples of word k, 1 … C: those C before, or C after.
    __device__ __forceinline__ u32 even_before(int k) const
    {
        if constexpr (C == 1) return __funnelshift_r(odd[k - 1], odd[k], 16);
        return C == 3 ? odd[k - 1] : even[k - 1];
    }

    __device__ __forceinline__ u32 even_after(int k) const
    {
        if constexpr (C == 1) return odd[k];
        return C == 3 ? __funnelshift_r(odd[k], odd[k + 1], 16) : even[k + 1];
    }

    __device__ __forceinline__ u32 odd_before(int k) const
    {
        if constexpr (C == 1) return even[k];
        return C == 3 ? __funnelshift_r(even[k - 1], even[k], 16) : odd[k - 1];
    }

    __device__ __forceinline__ u32 odd_after(int k) const
    {
        if constexpr (C == 1) return __funnelshift_r(even[k], even[k + 1], 16);
        return C == 3 ? even[k + 1] : odd[k + 1];
    }
};

// A row that does not begin at a multiple of 16 bytes; apart as `store_end` is.
static __device__ __noinline__ void store_row_slowly(u8* line, int bytes, const u32* from)
{
    for (int at = threadIdx.x % 32 * 4 - (int)((u64)line & 3); at < bytes; at += 128)
        store4(line, (const u8*)from, at, bytes);
}

// A warp's row of the tile, C words a lane, to the image, by way of shared memory.
template <int C>
__device__ __forceinline__ void store_pairs(const Item& item, const Tile& tile, int row, const u32* words, u32* room)
{
    int lane = threadIdx.x % 32, bytes = tile.width * C;
    u32 stride = item.width * C;
    u8* line = global<u8>(item.dst) + ((tile.y + row) * stride + tile.x * C);
    for (int k = 0; k < C; ++k) room[lane * C + k] = words[k];
    __syncwarp();
    if (stride % 16) store_row_slowly(line, bytes, room);
    else if (16 * lane < bytes) *(uint4*)(line + 16 * lane) = *(const uint4*)(room + 4 * lane);
    __syncwarp();
}

// Stages the tile and lets `make` have its part: the word of the row above its first one, its first row,
// the first sample of its row, and the warp's room.
template <int C, class Make>
__device__ __forceinline__ void pairs_tile(const Item& item, int block, u32* words, u32* room, const Make& make)
{
    Tile tile = tile_of(item, block, PAIRS_WIDTH, PAIRS_HEIGHT);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = warp * PAIRS_ROWS;
    stage_around<C, PAIRS_HEIGHT>(item, tile, words);
    __syncthreads();
    if (row < tile.height) make(tile, words + row * Pairs<C>::PITCH + lane * C + 4, row, (tile.x + 4 * lane) * C, room + 128 * warp);
}
