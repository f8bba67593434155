"""What the benchmarks on COCO share: annotations, prepared images, batches of any image size, and mAP over ranks."""
