# This image contains both programs, linked statically, and wget for health checks. The caches of the
# build need BuildKit, which Docker uses since version 23.
FROM golang:1.26-alpine AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/ ./cmd/...

FROM alpine:3.22
RUN adduser -D -H -u 10001 grablab && install -d -o grablab /var/lib/grablab/results
COPY --from=build /out/ /usr/local/bin/
USER grablab
WORKDIR /var/lib/grablab
EXPOSE 8004 8005
CMD ["grabsvc"]
