// Filters that see one pixel at a time: the image is one line of samples, LINE of them a block,
// 48 bytes a thread, which are whole pixels of 1, 3 and 4 channels.

constexpr u32 LINE = 12288;

__device__ __forceinline__ u32 samples_of(const Item& item)
{
    return (u32)item.width * item.height * item.channels;
}

__device__ __forceinline__ u32 mapped(u32 word, const u8* table, u32 kept)
{
    u32 low = table[word & 255] | (u32)table[word >> 8 & 255] << 8;
    u32 high = table[word >> 16 & 255] | (u32)table[word >> 24] << 8;
    return ((low | high << 16) & ~kept) | (word & kept);
}

// All samples but alpha through a table in shared memory.
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
            u32 made[4] = {mapped(v[i].x, table, kept), mapped(v[i].y, table, kept),
                           mapped(v[i].z, table, kept), mapped(v[i].w, table, kept)};
            store16(dst + at, made);
        } else {
            for (u32 s = at; s < total; ++s) dst[s] = kept && s % 4 == 3 ? src[s] : table[src[s]];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
through_table(const Item* items, const u32* starts, int n)
{
    __shared__ u8 table[256];
    int block;
    Item item = owner(items, starts, n, block);
    table[threadIdx.x] = global<const u8>(item.data)[threadIdx.x];
    __syncthreads();
    map_samples(item, block, table);
}

// Four pixels, C words: `map` makes a colour of a colour, alpha stays.
template <int C, class Map> __device__ __forceinline__ void map4(const u32* in, u32* out, const Map& map)
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
        else for (u32 s = at; s < total; ++s) dst[s] = src[s];
    }
}

// The colours of a pixel and its luma, blended; `from_grey` says which of the two is the base.
struct Fade {
    float factor;
    bool from_grey;

    __device__ __forceinline__ void operator()(const u32* colour, u32* made) const
    {
        float grey = as_float(luma(colour[0], colour[1], colour[2]));
        for (int c = 0; c < 3; ++c) {
            float level = as_float(colour[c]);
            made[c] = blend(from_grey ? grey : level, from_grey ? level : grey, factor);
        }
    }
};

__device__ __forceinline__ void fade_image(const Item& item, int block, bool from_grey)
{
    Fade fade = {*global<const float>(item.data), from_grey};
    if (item.channels == 3) map_pixels<3>(item, block, fade);
    else if (item.channels == 4) map_pixels<4>(item, block, fade);
    else copy_line(item, block);  // grey is its own luma
}

extern "C" __global__ void __launch_bounds__(256)
grayscale(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = owner(items, starts, n, block);
    fade_image(item, block, false);
}

extern "C" __global__ void __launch_bounds__(256)
saturation(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = owner(items, starts, n, block);
    fade_image(item, block, true);
}
