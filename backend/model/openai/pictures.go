package openai

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"

	"glasshouse/backend/domain"
	"glasshouse/backend/model"
)

// maxPicture is the most bytes of a picture that OpenAI takes.
const maxPicture = 20 << 20

// The kinds of pictures that the servers take; the name goes into a URL, so no other
// passes.
var pictureTypes = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true}

// picture makes a data URL of an image, or says in words why it is not shown.
func (c *client) picture(ctx context.Context, r model.Request, i model.Image) (url, instead string, err error) {
	not := func(why string) (string, string, error) {
		return "", fmt.Sprintf("[picture, sha256 %s, not shown: %s]", i.Sha256, why), nil
	}
	switch {
	case c.cfg.TextOnly:
		return not("the model takes text only")
	case !pictureTypes[i.Mime]:
		return not("models take PNG, JPEG, GIF and WebP")
	case i.Size > maxPicture:
		return not("it is too large")
	case r.Bytes == nil:
		return not("it cannot be read")
	}
	b, err := r.Bytes(ctx, i)
	if ctx.Err() != nil {
		return "", "", context.Cause(ctx)
	}
	var de *domain.Error
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &de) && de.Code == domain.CodeNotFound {
		return not("it was deleted")
	}
	if err != nil {
		return "", "", &model.Error{Kind: model.ErrInvalid, Message: fmt.Sprintf("the picture %s, which belongs to the conversation, cannot be read: %v", i.Sha256, err), Err: err}
	}
	if len(b) > maxPicture {
		return not("it is too large")
	}
	return "data:" + i.Mime + ";base64," + base64.StdEncoding.EncodeToString(b), "", nil
}
