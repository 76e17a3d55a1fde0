// The kernels of separable.cu, near for windows that reach 8 samples, far for those that reach 24.

template <int REACH>
__device__ __forceinline__ void blur_near(const Item* items, const u32* starts, int n, u32* planes)
{
    int block;
    Item item = owner(items, starts, n, block);
    if (item.channels == 1) separable_tile<REACH, 1>(item, block, Blurred(), planes);
    else separable_tile<REACH, 3>(item, block, Blurred(), planes);
}

extern "C" __global__ void __launch_bounds__(256, 4)
gaussian_near(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 planes[Field<8>::words(3) / 4];
    blur_near<8>(items, starts, n, (u32*)planes);
}

extern "C" __global__ void __launch_bounds__(256, 4)
gaussian_far(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 planes[Field<24>::words(3) / 4];
    blur_near<24>(items, starts, n, (u32*)planes);
}

template <int REACH>
__device__ __forceinline__ void box_near_tile(const Item* items, const u32* starts, int n, u32* planes)
{
    int block;
    Item item = owner(items, starts, n, block);
    const u32* of = separable_of(item).parameters;
    Mean mean = {of[0], of[1]};
    if (item.channels == 1) separable_tile<REACH, 1>(item, block, mean, planes);
    else separable_tile<REACH, 3>(item, block, mean, planes);
}

extern "C" __global__ void __launch_bounds__(256, 4)
box_near(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 planes[Field<8>::words(3) / 4];
    box_near_tile<8>(items, starts, n, (u32*)planes);
}

extern "C" __global__ void __launch_bounds__(256, 4)
box_far(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 planes[Field<24>::words(3) / 4];
    box_near_tile<24>(items, starts, n, (u32*)planes);
}

template <int REACH>
__device__ __forceinline__ void unsharp_tile(const Item* items, const u32* starts, int n, u32* planes)
{
    int block;
    Item item = owner(items, starts, n, block);
    const u32* of = separable_of(item).parameters;
    Unsharp rule = {of[0], of[1]};
    if (item.channels == 1) separable_tile<REACH, 1>(item, block, rule, planes);
    else if (item.channels == 3) separable_tile<REACH, 3>(item, block, rule, planes);
    else separable_tile<REACH, 4>(item, block, rule, planes);
}

extern "C" __global__ void __launch_bounds__(256, 4)
unsharp_near(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 planes[Field<8>::words(4) / 4];
    unsharp_tile<8>(items, starts, n, (u32*)planes);
}

extern "C" __global__ void __launch_bounds__(256, 4)
unsharp_far(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 planes[Field<24>::words(4) / 4];
    unsharp_tile<24>(items, starts, n, (u32*)planes);
}
